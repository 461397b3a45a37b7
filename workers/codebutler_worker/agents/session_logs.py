"""Session logs: every byte that an agent's program writes, unchanged and before anything else reads it.

``.codebutler/logs/sessions/<session>.log``, mode 0600, one per turn; a line of ours ends it. The session's name is the
first eight characters of the turn's id.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from msgspec import Struct, field

from codebutler.config.schema import RepoSettings
from codebutler_worker.agents.backend import Finished
from codebutler_worker.sandbox.destinations import make_beneath, open_beneath, remove_old
from codebutler_worker.store.opening import STATE_DIR

SESSIONS = f"{STATE_DIR}/logs/sessions"
NAME = re.compile(r"[0-9a-zA-Z_-]{1,32}")
ID_CHARS = 8
SECONDS_A_DAY = 86_400
ENDING = "\n--- session {session} ended {moment} {outcome} ---\n"

_ENDED = re.compile(rb"\n--- session [\w-]+ ended [^\n]* ---\n\Z")


def session_of(turn_id: str) -> str:
    """The name that people see for the session of a turn."""
    return turn_id[:ID_CHARS]


class SessionLog(Struct, eq=False):
    """One open log. ``write`` may be called from any thread and never raises: a full disk loses the record, not the
    work. ``finished``: how the turn ended, for the last line, which is ``ending`` ("" = the caller writes it itself).
    ``limit_bytes``: anything beyond it is left out, except for the last line (0 = no limit)."""

    _descriptor: int | None
    session: str
    failed: str = ""
    limit_bytes: int = 0
    finished: Finished | None = None
    size_bytes: int = 0
    ending: str = ENDING
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def write(self, data: bytes | memoryview, *, is_output: bool = True) -> None:
        """Append output of the program, or a line of ours."""
        with self._lock:
            if is_output and self.limit_bytes and self.size_bytes + len(data) > self.limit_bytes:
                self.failed = self.failed or f"it has {self.limit_bytes / 2**30:g} GB (sandbox.fileSizeGb)"
            elif self._descriptor is not None and not (is_output and self.failed):
                left = memoryview(data)
                try:
                    while left:
                        left = left[os.write(self._descriptor, left) :]
                    self.size_bytes += len(data)
                except OSError as error:
                    self.failed = error.strerror or str(error)

    def close(self, duration_s: float, at: datetime) -> None:
        """Append the last line: when it ended, how, and how long it took. A second call does nothing."""
        ended = self.finished
        outcome = f"status={ended.reason if ended else 'failed'}"
        if ended is not None and ended.exit_code is not None:
            outcome += f" exit_code={ended.exit_code}"
        outcome += f" duration_s={duration_s:.3f} bytes={self.size_bytes}"
        moment = at.astimezone(UTC).isoformat(timespec="seconds")
        last = self.ending.format(session=self.session, moment=moment, outcome=outcome)
        self.write(last.encode(), is_output=False)
        with self._lock:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                os.close(descriptor)


class OpenLog:
    """A session's log for random access. A context manager."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def __enter__(self) -> OpenLog:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` to before ``end``. Raises OSError."""
        return os.pread(self._descriptor, end - start, start)


class SessionLogs:
    """The session logs of one repository, none larger than ``limit_bytes`` (0 = any size): a flood would fill the disk.
    Blocking; call it in a thread."""

    def __init__(self, repo: Path, retention_days: int, limit_bytes: int = 0) -> None:
        self._repo = repo
        self._limit_bytes = limit_bytes
        self._retention_s = retention_days * SECONDS_A_DAY
        self._swept_s = 0.0

    @classmethod
    def of(cls, settings: RepoSettings) -> Self:
        """The logs, with the limits of the configuration."""
        config = settings.config
        return cls(Path(settings.path), config.logs.retention_days, config.sandbox.file_size_gb * 2**30)

    def open(self, turn_id: str, now: datetime) -> SessionLog:
        """Open the turn's log, after what an interrupted run of it wrote. If it cannot be written, ``failed`` says so.
        Once a day it also removes old logs."""
        session = session_of(turn_id)
        try:
            directory = make_beneath(self._repo / STATE_DIR, "logs", "sessions")
        except OSError as error:
            return SessionLog(None, session, error.strerror or str(error))
        try:
            if now.timestamp() - self._swept_s > SECONDS_A_DAY:
                self._swept_s = now.timestamp()
                remove_old(directory, ".log", now.timestamp() - self._retention_s)
            if not NAME.fullmatch(session):
                raise OSError(errno.EINVAL, "no name for a log")
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(f"{session}.log", flags, 0o600, dir_fd=directory)
            return SessionLog(descriptor, session, limit_bytes=self._limit_bytes)
        except OSError as error:
            return SessionLog(None, session, error.strerror or str(error))
        finally:
            os.close(directory)

    def size_of(self, session: str) -> int | None:
        """The size of the session's log in bytes, None if there is none."""
        with contextlib.suppress(OSError):
            descriptor = self._open(session)
            try:
                return os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)
        return None

    def reader(self, session: str) -> OpenLog:
        """Open the session's log for reading. Raises OSError (FileNotFoundError if there is none)."""
        return OpenLog(self._open(session))

    def output(self, session: str, last_bytes: int) -> bytes:
        """The end of the program's output, without our last line. Raises OSError (FileNotFoundError if there is no
        log)."""
        with self.reader(session) as log:
            return _ENDED.sub(b"", log.read(max(0, log.size - last_bytes), log.size))

    def _open(self, session: str) -> int:
        if not NAME.fullmatch(session):
            raise FileNotFoundError(errno.ENOENT, "no such session", session)
        descriptor = open_beneath(self._repo, f"{SESSIONS}/{session}.log", os.O_RDONLY | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileNotFoundError(errno.ENOENT, "not a log", session)
        return descriptor
