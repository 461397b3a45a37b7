"""Our own files: locks with one holder; reading and writing with size limits, atomic, private, never through a link."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import time
from pathlib import Path
from types import TracebackType

from codebutler.domain.errors import CodeButlerError, ConfigError, StoreError
from codebutler.platform.system import this_system

POLL_S = 0.05
MAX_CONFIG_BYTES = 256 * 1024
_HINTS = {
    errno.EROFS: "the disk is read-only: make it writable or choose another CODEBUTLER_HOME",
    errno.EACCES: "permission denied: check its owner and mode",
    errno.EPERM: "not permitted: check its owner and mode",
    errno.ENOSPC: "the disk is full: free some space and try again",
    errno.EDQUOT: "the disk quota is used up: free some space and try again",
}


class FileLock:
    """Held from ``acquire`` to ``release``, or as a context manager.

    The file is not removed: otherwise two processes could hold "the" lock at once.
    """

    def __init__(self, path: Path, holder: str) -> None:
        """``holder`` is the name for the holder in an error."""
        self._path = path
        self._holder = holder
        self._fd = -1

    def acquire(self, wait_s: float = 0.0) -> FileLock:
        """Blocks for ``wait_s`` seconds at most. Raises StoreError if another process holds it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC  # no child of ours may keep it locked
        try:
            fd = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror or error}: check its permissions") from error
        deadline_s = time.monotonic() + wait_s
        while not _taken(fd):
            if time.monotonic() >= deadline_s:
                os.close(fd)
                raise StoreError(f"{self._path.parent}: {self._holder} uses it: stop that one first")
            time.sleep(POLL_S)
        self._fd = fd
        return self

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> FileLock:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of the file (of a link, its own); None if there is no file, or we may not look."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class PrivateDir:
    """An open directory whose files are read and replaced by name.

    The descriptor pins the directory: if an agent replaces its path later, we do not follow. With ``follow_links``
    false (everything inside a repository) neither the directory nor a file in it may be a symbolic link.
    """

    def __init__(self, path: Path, *, follow_links: bool = False, create: bool = False) -> None:
        self.path = path
        self._follow = 0 if follow_links else os.O_NOFOLLOW
        self._create = create
        self._fd = -1

    def __enter__(self) -> PrivateDir:
        """Raises FileNotFoundError if it is missing, ConfigError if it is a link or not a directory."""
        if self._create:
            self._make()
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | self._follow)
        except (FileNotFoundError, PermissionError):
            raise
        except OSError as error:
            raise ConfigError(
                f"{self.path} must be a real directory, not a link or a file: remove it"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def read(self, name: str, limit_bytes: int = MAX_CONFIG_BYTES) -> bytes | None:
        """The file's bytes, None if it is missing.

        Raises ConfigError for anything that is not a regular file of at most ``limit_bytes``.
        """
        full = self.path / name
        try:
            # O_NONBLOCK: opening a planted named pipe must not hang
            fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | self._follow, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise ConfigError(f"{full} is a symbolic link: replace it by the file itself") from error
            raise ConfigError(f"cannot read {full}: {reason(error)}") from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise ConfigError(f"{full} is not a regular file: remove it")
        with os.fdopen(fd, "rb") as file:
            data = file.read(limit_bytes + 1)
        if len(data) > limit_bytes:
            raise ConfigError(f"{full} is larger than {limit_bytes // 1024} KiB, the limit for this file")
        return data

    def write(self, name: str, data: bytes, mode: int = 0o600) -> None:
        """Replace the file atomically: a crash leaves the old or the new one. Raises CodeButlerError."""
        if not self._follow and (self.path / name).is_symlink():
            target = (self.path / name).resolve()
            with PrivateDir(target.parent, follow_links=True) as directory:
                return directory.write(target.name, data, mode)
        temporary = f".{name}.{secrets.token_hex(6)}"
        try:
            fd = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=self._fd
            )
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    file.flush()
                    this_system().sync(file.fileno())
                os.replace(temporary, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)
            except OSError:
                os.unlink(temporary, dir_fd=self._fd)
                raise
            this_system().sync(self._fd)
        except OSError as error:
            raise write_error(self.path / name, error) from error

    def _make(self) -> None:
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except FileExistsError:
            return  # a file or a dangling link: the open that follows reports it
        except OSError as error:
            raise write_error(self.path, error) from error


def write_error(path: Path, error: OSError) -> CodeButlerError:
    """The error for a user when ``path`` cannot be written."""
    return CodeButlerError(f"cannot write {path}: {reason(error)}")


def reason(error: OSError) -> str:
    """Why one of our files cannot be used, and what to do if that is known."""
    return _HINTS.get(error.errno or 0) or (error.strerror or "unknown error").lower()


def open_regular(directory: Path, relative: str) -> int:
    """A descriptor for reading the regular file ``directory/relative``; the caller closes it. No part of ``relative``
    may be a link, as somebody else may write there. Raises OSError."""
    *parents, name = relative.split("/")
    at = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            deeper = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = deeper
        # O_NONBLOCK: opening a planted named pipe must not hang
        fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    finally:
        os.close(at)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", relative)
    return fd
