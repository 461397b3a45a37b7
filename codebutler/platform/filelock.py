"""One holder per lock file: an flock, which the kernel frees however its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from codebutler.domain.errors import StoreError

POLL_S = 0.05


class FileLock:
    """Held from ``acquire`` to ``release``, or as a context manager.

    Its file stays behind: removing it could let two processes hold "the" lock at once.
    """

    def __init__(self, path: Path, holder: str) -> None:
        """``holder`` says, in an error, what has it."""
        self._path = path
        self._holder = holder
        self._fd = -1

    def acquire(self, wait_s: float = 0.0) -> FileLock:
        """Blocks for ``wait_s`` seconds at most. Raises StoreError if it is held by somebody else."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC  # no child of ours may keep it held
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
        """May be called twice."""
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
