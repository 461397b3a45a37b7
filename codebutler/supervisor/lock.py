"""One supervisor per home: an flock, which the kernel frees however its holder dies (a pid file is none)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from types import TracebackType

from codebutler.domain.errors import LockHeldError


class SupervisorLock:
    """Holds ``path`` from enter to exit. The descriptor is close-on-exec: no orphaned child keeps it held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> SupervisorLock:
        """Raises LockHeldError, naming the holder's pid, if another process has it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _pid_in(fd)
            os.close(fd)
            raise LockHeldError(
                f"a supervisor already runs on {self._path.parent} (pid {holder or 'unknown'}): "
                "stop it first, or use `codebutler status`",
                holder,
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.ftruncate(self._fd, 0)
        os.close(self._fd)


def is_held(path: Path) -> bool:
    """Whether a supervisor runs, as far as can be known."""
    try:
        with SupervisorLock(path):
            return False
    except LockHeldError:
        return True
    except OSError:
        return False


def _pid_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).decode(errors="replace").strip()
    return int(text) if text.isdigit() else None
