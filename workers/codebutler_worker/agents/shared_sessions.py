"""Sessions that are shared with a terminal: whether one is open there, and its copy under a name of its own.

Two programs that continue one session at the same time lose each other's answers (Claude Code 2.1.328, Kimi Code
2.1.0), so a session that is open in a terminal is copied, and the copy continues here. Agents write where the sessions
are: nothing is read or written through a link. Blocking.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec

from codebutler.config.agent_sessions import CLAUDE, SessionFiles, files_of
from codebutler.domain.errors import AgentUnavailableError
from codebutler.platform.system import this_system
from codebutler_worker.sandbox.destinations import make_directories, make_file, read_regular

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
    if files is None or not files.has(session_id) or not _is_open(home, workdir, agent, session_id):
        return session_id
    return _copy_session(home, files, files, session_id, workdir)


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
    return _copy_session(home, there, here, session_id, workdir)


def _is_open(home: Path, workdir: Path, agent: str, session_id: str) -> bool:
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


def _copy_session(home: Path, there: SessionFiles, here: SessionFiles, session_id: str, workdir: Path) -> str:
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
    except (msgspec.DecodeError, UnicodeError) as error:
        raise OSError(f"{STATE} is damaged") from error
    return msgspec.json.encode({**state, "cwd": os.path.realpath(workdir)})


def _notes(directory: Path) -> Iterator[_OpenSession]:
    for path in directory.glob("*.json"):
        try:
            yield msgspec.json.decode(
                read_regular(directory, path.name, NOTE_BYTES, head=True), type=_OpenSession
            )
        except (OSError, msgspec.DecodeError, UnicodeError):
            continue


def _runs(note: _OpenSession) -> bool:
    """Whether it is still the process that noted it; if the two start times are not written alike, any with its pid."""
    found = this_system().seen([note.pid]).get(note.pid)
    if found is None:
        return False
    alike = note.proc_start.isdigit() and found.started.isdigit()
    return not alike or note.proc_start == found.started
