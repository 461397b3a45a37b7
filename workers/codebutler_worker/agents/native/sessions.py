"""Where the native agent's sessions are kept: ``.codebutler/native/<session>.jsonl``, mode 0600, which agents do not
see. Each step is appended as it happens, so that a killed worker loses nothing but what was just going on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import msgspec

from codebutler.domain.errors import StoreError
from codebutler_worker.agents.native.model import AssistantMessage, Message, SystemMessage, ToolMessage
from codebutler_worker.sandbox.destinations import make_beneath, remove_old
from codebutler_worker.store.state_dir import STATE_DIR
from codebutler_worker.tools.outcome import PlanStep

DIRECTORY = "native"
SESSION = re.compile(r"native-[0-9a-f]{32}")
MAX_BYTES = 256 * 2**20
SECONDS_A_DAY = 86_400


class Session:
    """One that a turn works in: each step is on disk before the next one begins. ``fresh``: the one that was asked for
    is gone."""

    def __init__(
        self, descriptor: int, session_id: str, history: SessionHistory | None = None, *, fresh: bool = False
    ) -> None:
        self.id = session_id
        self.history = history or SessionHistory()
        self.fresh = fresh
        self._descriptor: int | None = descriptor

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model is given again, oldest first; what was cleaned away is not among it."""
        return self.history.messages

    async def keep(self, *records: Record) -> None:
        """Add what happened. Raises StoreError if it cannot be kept; then it did not happen here either."""
        if records:
            await asyncio.to_thread(self.append, records)

    async def say(self, *messages: Message) -> None:
        """Add messages."""
        await self.keep(*(SaidRecord(message) for message in messages))

    def append(self, records: Iterable[Record]) -> None:
        """Write them in one go. Blocking. Raises StoreError for a full or failing disk."""
        records = tuple(records)
        data = memoryview(b"".join(line(record) for record in records))
        try:
            while data and self._descriptor is not None:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise StoreError(f"the agent's session cannot be kept: {error.strerror}: make room") from error
        for record in records:
            self.history = after(self.history, record)

    def close(self) -> None:
        """Close the file. May be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class NativeSessions:
    """The sessions of one repository. Blocking; call it in a thread."""

    def __init__(self, repo: Path, retention_days: int) -> None:
        self._repo = repo
        self._retention_s = retention_days * SECONDS_A_DAY
        self._swept_s = 0.0

    def begin(self, at: str, now_s: float, *, fresh: bool = False) -> Session:
        """A new session. Removes what is too old, once a day. Raises StoreError."""
        session_id = f"native-{uuid4().hex}"
        with self._directory() as directory:
            if now_s - self._swept_s > SECONDS_A_DAY:
                self._swept_s = now_s
                remove_old(directory, ".jsonl", now_s - self._retention_s)
            opened = _open(directory, session_id, os.O_CREAT | os.O_EXCL)
        session = Session(opened, session_id, fresh=fresh)
        session.append([OpenedRecord(at)])
        return session

    def resume(self, session_id: str) -> Session | None:
        """A session that was begun earlier, None if it is not there any more. Raises StoreError."""
        if not SESSION.fullmatch(session_id):
            return None
        with self._directory() as directory:
            try:
                descriptor = _open(directory, session_id, 0)
            except StoreError:
                return None
        history = read(_content(descriptor))
        if history is None:
            os.close(descriptor)
            return None
        return Session(descriptor, session_id, history)

    @contextlib.contextmanager
    def _directory(self) -> Iterator[int]:
        """A descriptor of the directory, made if it is missing; no step of the way may be a link."""
        try:
            found = make_beneath(self._repo, STATE_DIR, DIRECTORY)
        except OSError as error:
            raise StoreError(f"the agent's session cannot be kept: {error.strerror or error}") from error
        try:
            yield found
        finally:
            os.close(found)


def _open(directory: int, session_id: str, flags: int) -> int:
    flags |= os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(f"{session_id}.jsonl", flags, 0o600, dir_fd=directory)
    except OSError as error:
        raise StoreError(f"the agent's session cannot be kept: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError("the agent's session cannot be kept: it is no file")
    return descriptor


def _content(descriptor: int) -> bytes:
    """All of it; a last line that is only half there gets its end, so that the next one begins anew."""
    size = os.fstat(descriptor).st_size
    if size > MAX_BYTES:
        return b""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read()
    if content and not content.endswith(b"\n"):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"\n")
    return content


# A session's records, which are only ever appended to: what was said, and what became of it. Pure.
#
# A record is one line of JSON. A line that cannot be read (half of it was written when the machine went off) is left
# out; what a call then has no result for is mended, since services refuse a call without one.

VERSION = 1
INTERRUPTED = "(nobody knows what came of this call: it was cut off)"


class OpenedRecord(msgspec.Struct, frozen=True, tag="opened"):
    """The session began. Its first line."""

    at: str
    version: int = VERSION


class SaidRecord(msgspec.Struct, frozen=True, tag="said"):
    """One more message."""

    message: Message


class PlannedRecord(msgspec.Struct, frozen=True, tag="planned"):
    """The plan as it stands now."""

    steps: tuple[PlanStep, ...]


class CleanedRecord(msgspec.Struct, frozen=True, tag="cleaned"):
    """To make room, these messages stand for all before."""

    messages: tuple[Message, ...]


class StoodRecord(msgspec.Struct, frozen=True, tag="stood"):
    """The terminal's directory at the end of a turn."""

    cwd: str


Record = OpenedRecord | SaidRecord | PlannedRecord | CleanedRecord | StoodRecord


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """A session as it stands."""

    messages: tuple[Message, ...] = ()
    plan: tuple[PlanStep, ...] = ()
    cwd: str = ""


def after(history: SessionHistory, record: Record) -> SessionHistory:
    """The history with one record more."""
    match record:
        case SaidRecord(message):
            return replace(history, messages=(*history.messages, message))
        case CleanedRecord(messages):
            return replace(history, messages=messages)
        case PlannedRecord(steps):
            return replace(history, plan=steps)
        case StoodRecord(cwd):
            return replace(history, cwd=cwd)
        case OpenedRecord():
            return history


def line(record: Record) -> bytes:
    """A record as it is kept."""
    return msgspec.json.encode(record) + b"\n"


def read(content: bytes) -> SessionHistory | None:
    """The session that the lines tell of; None if they are no session of ours."""
    decoder = msgspec.json.Decoder(Record)
    history, opened = SessionHistory(), False
    messages: list[Message] = []
    for each in content.split(b"\n"):
        try:
            record = decoder.decode(each)
        except (msgspec.DecodeError, UnicodeError):
            continue
        if isinstance(record, SaidRecord):
            messages.append(record.message)
            continue
        if isinstance(record, CleanedRecord):
            messages = list(record.messages)
        opened = opened or (isinstance(record, OpenedRecord) and record.version == VERSION)
        history = after(history, record)
    mended_ = mended(messages)
    if not opened or not mended_ or not isinstance(mended_[0], SystemMessage):
        return None
    return replace(history, messages=tuple(mended_))


def mended(messages: Iterable[Message]) -> list[Message]:
    """With a result after each call, in the order of the calls, and none without its call."""
    found: list[Message] = []
    missing: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id in missing:
                missing.remove(message.call_id)
                found.append(message)
            continue
        found += [ToolMessage(call_id, INTERRUPTED) for call_id in missing]
        missing = [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
        found.append(message)
    return found + [ToolMessage(call_id, INTERRUPTED) for call_id in missing]
