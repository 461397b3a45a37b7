"""The built-in agent's sessions: ``.codebutler/native/<session>.jsonl``, mode 0600, hidden from agents. Each step is
appended as it happens, so that a killed worker loses only the step in progress."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.errors import StoreError
from codebutler_worker.agents.native.model import AssistantMessage, Message, SystemMessage, ToolMessage
from codebutler_worker.sandbox.destinations import make_beneath, remove_old
from codebutler_worker.store.opening import STATE_DIR
from codebutler_worker.tools.tool import PlanStep

DIRECTORY = "native"
SESSION = re.compile(r"native-[0-9a-f]{32}")
MAX_BYTES = 256 * 2**20
SECONDS_A_DAY = 86_400


class Session:
    """The session of a turn: each step is on disk before the next one starts. ``fresh``: the requested session is
    gone."""

    def __init__(
        self, descriptor: int, session_id: str, history: SessionHistory | None = None, *, fresh: bool = False
    ) -> None:
        self.id = session_id
        self.history = history or SessionHistory()
        self.fresh = fresh
        self._descriptor: int | None = descriptor

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages for the model, oldest first, without those that were cleaned away."""
        return self.history.messages

    async def keep(self, *records: Record) -> None:
        """Append records. Raises StoreError if they cannot be written; then they do not count here either."""
        if records:
            await asyncio.to_thread(self.append, records)

    async def say(self, *messages: Message) -> None:
        """Append messages."""
        await self.keep(*(SaidRecord(message) for message in messages))

    def append(self, records: Iterable[Record]) -> None:
        """Write records in one go. Blocking. Raises StoreError if the disk is full or failing."""
        records = tuple(records)
        data = memoryview(b"".join(line(record) for record in records))
        try:
            while data and self._descriptor is not None:
                data = data[os.write(self._descriptor, data) :]
        except OSError as error:
            raise StoreError(
                f"the agent's session cannot be saved: {error.strerror}: free some disk space"
            ) from error
        for record in records:
            self.history = after(self.history, record)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
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
        """A new session. Once a day it also removes old ones. Raises StoreError."""
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
        """An existing session, None if it is gone. Raises StoreError."""
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
        """A descriptor of the directory, created if missing; no component may be a link."""
        try:
            found = make_beneath(self._repo / STATE_DIR, DIRECTORY)
        except OSError as error:
            raise StoreError(f"the agent's session cannot be saved: {error.strerror or error}") from error
        try:
            yield found
        finally:
            os.close(found)


def _open(directory: int, session_id: str, flags: int) -> int:
    flags |= os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(f"{session_id}.jsonl", flags, 0o600, dir_fd=directory)
    except OSError as error:
        raise StoreError(f"the agent's session cannot be saved: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError("the agent's session cannot be saved: it is not a regular file")
    return descriptor


def _content(descriptor: int) -> bytes:
    """The whole file. An incomplete last line gets a line end, so that the next one starts cleanly."""
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


# A session's records, which are append-only: what was said, and what was done. Pure.
#
# A record is one line of JSON. An unreadable line (half of it was written when the machine went off) is skipped; a call
# that then lacks a result gets one, since services refuse a call without one.

VERSION = 1
INTERRUPTED = "(the result of this call is unknown: it was cut off)"


class OpenedRecord(msgspec.Struct, frozen=True, tag="opened"):
    """The session started. The first record."""

    at: str
    version: int = VERSION


class SaidRecord(msgspec.Struct, frozen=True, tag="said"):
    """A message was added to the conversation."""

    message: Message


class PlannedRecord(msgspec.Struct, frozen=True, tag="planned"):
    """The current plan."""

    steps: tuple[PlanStep, ...]


class CleanedRecord(msgspec.Struct, frozen=True, tag="cleaned"):
    """To make room, these messages replace all before them."""

    messages: tuple[Message, ...]


class StoodRecord(msgspec.Struct, frozen=True, tag="stood"):
    """The terminal's directory at the end of a turn."""

    cwd: str


Record = OpenedRecord | SaidRecord | PlannedRecord | CleanedRecord | StoodRecord


class SessionHistory(Struct, frozen=True):
    """The current state of a session."""

    messages: tuple[Message, ...] = ()
    plan: tuple[PlanStep, ...] = ()
    cwd: str = ""


def after(history: SessionHistory, record: Record) -> SessionHistory:
    """The history with one more record."""
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
    """A record as a line of the file."""
    return msgspec.json.encode(record) + b"\n"


def read(content: bytes) -> SessionHistory | None:
    """The session in the file; None if it is not a session of ours."""
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
    """The messages with a result after each call, in the order of the calls, and no result without its call."""
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
