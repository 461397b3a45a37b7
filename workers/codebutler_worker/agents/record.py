"""Session logs: every byte that an agent's program writes, unchanged and before anything else reads it.

``.codebutler/logs/sessions/<session>.log``, mode 0600, one per turn; a line of ours ends it. The session's name is the
first eight characters of the turn's id.

Sessions that are shared with a terminal: whether one is open there, and its copy under a name of its own.

Two programs that continue one session at the same time lose each other's answers (Claude Code 2.1.328, Kimi Code
2.1.0), so a session that is open in a terminal is copied, and the copy continues here. Agents write where the sessions
are: nothing is read or written through a link. Blocking.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Self
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from codebutler.config.agent_sessions import CLAUDE, SessionFiles, files_of
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.agents.backend import Finished
from codebutler_worker.sandbox.destinations import (
    make_beneath,
    make_directories,
    make_file,
    open_beneath,
    read_regular,
    remove_old,
)
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
        session = turn_id[:ID_CHARS]
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


LIMIT_BYTES = 256 * 2**20
MOST_FILES = 2_000
NOTE_BYTES = 64 * 2**10
STATE = "state.json"


class _OpenSession(msgspec.Struct, rename="camel"):
    """What Claude Code notes of a session while it is open (``~/.claude/sessions/PID.json``)."""

    pid: int = 0
    session_id: str = ""
    kind: str = ""
    proc_start: str = ""


def kept_here(home: Path, workdir: Path, agent: str, session_id: str) -> str:
    """The session to resume in ``workdir``: that one, or a copy of it if it is open in a terminal there.

    Raises AgentUnavailableError if it cannot be copied.
    """
    files = _files(home, workdir, agent)
    if files is None or not files.has(session_id) or not is_open(home, workdir, agent, session_id):
        return session_id
    return copy_session(home, files, files, session_id, workdir)


def brought_to(home: Path, agent: str, session_id: str, begun_in: Path, workdir: Path) -> str:
    """The session as it can be resumed in ``workdir``: itself if it is there and not open in a terminal, otherwise a
    copy. Raises AgentUnavailableError."""
    there, here = _files(home, begun_in, agent), _files(home, workdir, agent)
    if there is None or here is None:
        raise AgentUnavailableError(
            f"the path of {workdir} is too long for an agent's session files: use a shorter path"
        )
    if here.has(session_id):
        return kept_here(home, workdir, agent, session_id)
    return copy_session(home, there, here, session_id, workdir)


def is_open(home: Path, workdir: Path, agent: str, session_id: str) -> bool:
    """Whether somebody has it open in a terminal. Kimi Code does not say which session it has open: any in ``workdir``
    counts.
    """
    if agent == CLAUDE:
        return any(
            note.session_id == session_id and note.kind == "interactive" and _runs(note)
            for note in _notes(home / ".claude" / "sessions")
        )
    real = os.path.realpath(workdir)
    return any(str(each) == real for each in this_system().at_terminal("kimi-code"))


def copy_session(home: Path, there: SessionFiles, here: SessionFiles, session_id: str, workdir: Path) -> str:
    """Copy it under a new id, which is returned. Raises AgentUnavailableError."""
    agent = there.agent
    copied = str(uuid4()) if agent == CLAUDE else f"session_{uuid4()}"
    names = ((session_id, copied), (there.directory.name, here.directory.name))
    record, left = there.record(session_id), LIMIT_BYTES
    try:
        # The record last: the session is there when it is.
        for path in (*_beside(there.directory / session_id, session_id, record), record):
            content = _whole(there.directory, path, left)
            left -= len(content)
            if path == f"{session_id}/{STATE}":
                content = _moved(content, workdir)
            for old, new in names:
                content = content.replace(old.encode(), new.encode())
            target = here.directory / path.replace(session_id, copied)
            make_directories(home, target.parent)
            make_file(target.parent, target.name, content)
    except OSError as error:
        raise AgentUnavailableError(
            f"session {session_id} cannot be copied ({error.strerror or error}): "
            f"check {there.directory} on this machine"
        ) from error
    return copied


def _files(home: Path, workdir: Path, agent: str) -> SessionFiles | None:
    return next((each for each in files_of(home, workdir) if each.agent == agent), None)


def _beside(directory: Path, session_id: str, record: str) -> Iterator[str]:
    """What else belongs to it, except its logs."""
    found = 0
    for at, directories, names in os.walk(directory, followlinks=False):
        directories[:] = [name for name in directories if name != "logs"]
        for name in names:
            path = f"{session_id}/{(Path(at) / name).relative_to(directory)}"
            found += 1
            if path != record and found <= MOST_FILES and not (Path(at) / name).is_symlink():
                yield path


def _whole(directory: Path, path: str, limit_bytes: int) -> bytes:
    """A file; of a record, only its complete lines. Raises OSError."""
    content = read_regular(directory, path, limit_bytes + 1, head=True)
    if len(content) > limit_bytes:
        raise OSError(f"more than {LIMIT_BYTES // 2**20} MB")
    return content[: content.rfind(b"\n") + 1] if path.endswith(".jsonl") else content


def _moved(content: bytes, workdir: Path) -> bytes:
    """Kimi Code's note of a session, for another directory. Raises OSError."""
    try:
        state = msgspec.json.decode(content, type=dict[str, object])
    except msgspec.DecodeError as error:
        raise OSError(f"{STATE} is damaged") from error
    return msgspec.json.encode({**state, "cwd": os.path.realpath(workdir)})


def _notes(directory: Path) -> Iterator[_OpenSession]:
    for path in directory.glob("*.json"):
        try:
            yield msgspec.json.decode(
                read_regular(directory, path.name, NOTE_BYTES, head=True), type=_OpenSession
            )
        except (OSError, msgspec.DecodeError):
            continue


def _runs(note: _OpenSession) -> bool:
    """Whether it is still the process that noted it; if the two start times are not written alike, any with its pid."""
    found = this_system().seen([note.pid]).get(note.pid)
    if found is None:
        return False
    alike = note.proc_start.isdigit() and found.started.isdigit()
    return not alike or note.proc_start == found.started
