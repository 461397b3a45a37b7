"""Paths inside a directory with a hostile writer: no component may be a symbolic link.

Checking names loses a race, so everything here works on descriptors: in one call if the system has one, else by a walk
that opens each component with O_NOFOLLOW.
``relative`` has no leading slash and no "..".
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from codebutler.config.git_repo import Owner
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.platform.system import this_system

O_PATH = getattr(os, "O_PATH", os.O_RDONLY)


class UnsafePathError(OSError):
    """A path leaves its directory or goes through a symbolic link."""


def area_of(path: Path, areas: Iterable[Path]) -> Path | None:
    """The first of ``areas`` that contains the path, None if none does. Pure."""
    return next((area for area in areas if path.is_relative_to(area)), None)


def open_beneath(root: Path, relative: str, flags: int, *, portable: bool = False) -> int:
    """A descriptor for ``root/relative``; the caller closes it. ``portable`` forces the walk.

    Raises UnsafePathError for a symbolic link or a path that leaves ``root``, FileNotFoundError and other OSError as
    open(2).
    """
    parts = PurePosixPath(relative).parts
    if not parts or relative.startswith("/") or ".." in parts or "\0" in relative:
        raise UnsafePathError(errno.EXDEV, "not a path below the directory", relative)
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not portable:
            with contextlib.suppress(NotImplementedError):
                return this_system().open_beneath(top, relative, flags)
        return _walk(top, parts, flags)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV):
            raise UnsafePathError(error.errno, "goes through a symbolic link", relative) from error
        raise
    finally:
        os.close(top)


def make_beneath(root: Path, *names: str, owner: Owner | None = None) -> int:
    """A descriptor for a directory below ``root``, which exists: each of ``names`` inside the previous one, created
    (for ``owner``, None = us) if missing. The caller closes it. Raises OSError, also if ``root`` or a name is a
    symbolic link."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in names:
            is_new = False
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
                is_new = True
            deeper = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = deeper
            if is_new and owner is not None:
                os.fchown(at, owner.uid, owner.gid)
    except BaseException:
        os.close(at)
        raise
    return at


def make_directories(home: Path, path: Path) -> None:
    """Create ``path`` below ``home`` with its missing parents, for the owner of the home. As root it follows no links,
    which could point anywhere. Raises SandboxUnavailableError."""
    try:
        if os.geteuid() != 0:
            path.mkdir(parents=True, exist_ok=True)
        else:
            found = home.stat()
            owner = Owner(found.st_uid, found.st_gid)
            os.close(make_beneath(home.resolve(), *path.relative_to(home).parts, owner=owner))
    except OSError as error:
        raise SandboxUnavailableError(
            f"{path} cannot be created ({error.strerror}): make it a directory that belongs to the owner of {home}"
        ) from error


def make_directory(root: Path, name: str, mode: int, owner: Owner | None = None) -> None:
    """Create an empty directory for ``owner``, None = the owner of ``root``. Raises OSError as mkdir(2)."""
    with _directory(root) as at:
        whose = os.fstat(at)
        uid, gid = (owner.uid, owner.gid) if owner else (whose.st_uid, whose.st_gid)
        os.mkdir(name, mode, dir_fd=at)
        os.chown(name, uid, gid, dir_fd=at, follow_symlinks=False)


def make_file(root: Path, name: str, content: str | bytes = "") -> None:
    """Create a file that belongs to the owner of ``root``. Raises OSError as open(2)."""
    with _directory(root) as at:
        owner = os.fstat(at)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o644, dir_fd=at), "wb") as file:
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(content.encode() if isinstance(content, str) else content)


def remove(root: Path, name: str) -> None:
    """Remove a file, or a directory with its content; does nothing if it does not exist. Raises OSError."""
    with _directory(root) as at, contextlib.suppress(FileNotFoundError):
        if stat.S_ISREG(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=at)
        else:
            shutil.rmtree(name, dir_fd=at)


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[int]:
    at = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield at
    finally:
        os.close(at)


def remove_old(directory: int, suffix: str, before_s: float) -> None:
    """Remove the files in the directory that end in ``suffix`` and were not modified since ``before_s`` (Unix time).
    Files that cannot be removed stay. Raises OSError if the directory cannot be read."""
    for name in os.listdir(directory):
        with contextlib.suppress(OSError):
            if name.endswith(suffix) and os.lstat(name, dir_fd=directory).st_mtime < before_s:
                os.unlink(name, dir_fd=directory)


def status_beneath(root: Path, relative: str) -> os.stat_result | None:
    """The status of ``root/relative``, None if it does not exist. Raises UnsafePathError."""
    try:
        descriptor = open_beneath(root, relative, O_PATH)
    except FileNotFoundError:
        return None
    try:
        return os.fstat(descriptor)
    finally:
        os.close(descriptor)


def read_regular(root: Path, relative: str, limit_bytes: int, *, head: bool = False) -> bytes:
    """The content of a regular file of at most ``limit_bytes``; ``head``: the first ``limit_bytes`` of a larger one.

    Raises UnsafePathError for a link, pipe, device, directory or a larger file; OSError as open(2).
    """
    with regular_file(root, relative) as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes and not head:
        raise UnsafePathError(errno.EFBIG, f"larger than {limit_bytes} bytes", relative)
    return content[:limit_bytes]


@contextlib.contextmanager
def regular_file(root: Path, relative: str) -> Iterator[BinaryIO]:
    """A regular file for reading, open in this block.

    Raises UnsafePathError for a link, pipe, device or directory; OSError as open(2).
    """
    # Without O_NONBLOCK a named pipe would block us forever.
    descriptor = open_beneath(root, relative, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UnsafePathError(errno.EINVAL, "not a regular file", relative)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _walk(top: int, parts: tuple[str, ...], flags: int) -> int:
    at = os.dup(top)
    try:
        for part in parts[:-1]:
            step = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(at)
            at = step
        _refuse_link(parts[-1], at)
        return os.open(parts[-1], flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except NotADirectoryError as error:
        name = str(error.filename)
        mode = os.stat(name, dir_fd=at, follow_symlinks=False).st_mode
        # It is a directory now, but was a link a moment ago.
        if stat.S_ISLNK(mode) or stat.S_ISDIR(mode):
            raise UnsafePathError(errno.ELOOP, "a symbolic link", name) from error
        raise
    finally:
        os.close(at)


def _refuse_link(name: str, directory: int) -> None:
    # With O_PATH or O_DIRECTORY, O_NOFOLLOW opens the link itself or reports a different error.
    if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
        raise UnsafePathError(errno.ELOOP, "a symbolic link", name)


# Unix sockets in a checkout on which programs outside listen: a database's, a development server's, git's own daemon's.
#
# Anyone who may write in a directory may connect to sockets there, in any network namespace. Sockets made in another
# network namespace are not listed, so agents keep their own servers. unix(7), proc_pid_net(5). Blocking.

LISTED = Path("/proc/net/unix")
PATH_FIELD = 7


def sockets_in(
    areas: Collection[Path], shown: Collection[Path], hidden: Path, listed: Path = LISTED
) -> tuple[Path, ...]:
    """The sockets below ``areas``, except those that are ``hidden`` and not ``shown``.

    Raises SandboxUnavailableError for a socket with a second name, which nothing can find.
    """
    try:
        table = listed.read_text(errors="surrogateescape")
    except OSError:
        return ()  # not Linux
    # The names of sockets that are files, as passed to bind(2).
    fields = [line.split(maxsplit=PATH_FIELD) for line in table.splitlines()[1:]]
    named = {
        each[PATH_FIELD] for each in fields if each[PATH_FIELD:] and not each[PATH_FIELD].startswith("@")
    }
    absolute = [name for name in named if name.startswith("/")]
    if relative := [name for name in named if not name.startswith("/")]:
        places = {place for place in (*areas, *_working_directories()) if area_of(place, areas)}
        absolute += [f"{place}/{name}" for place in places for name in relative]
    # With links in their directories resolved, each directory once.
    parts = [os.path.split(os.path.normpath(name)) for name in absolute]
    real = {directory: os.path.realpath(directory) for directory in {directory for directory, _ in parts}}
    found = {Path(real[directory], last) for directory, last in parts}
    return tuple(
        sorted(
            path
            for path in found
            if (area := area_of(path, areas)) is not None
            and (not path.is_relative_to(hidden) or area_of(path, shown))
            and _is_socket(area, path)
        )
    )


def _working_directories() -> Iterator[Path]:
    """Those of all processes: a socket name without a slash is relative to the working directory of the process that
    bound it."""
    for process in os.scandir("/proc"):
        if process.name.isdecimal():
            try:
                yield Path(process.path, "cwd").readlink()
            except OSError:
                continue


def _is_socket(area: Path, path: Path) -> bool:
    try:
        found = status_beneath(area, str(path.relative_to(area)))
    except (UnsafePathError, NotADirectoryError):
        return False
    if found is None or not stat.S_ISSOCK(found.st_mode):
        return False
    if found.st_nlink > 1:
        raise SandboxUnavailableError(
            f"{path} is a socket of a program outside, with another name (`find -samefile` shows it): remove that one"
        )
    return True
