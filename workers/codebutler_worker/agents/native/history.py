"""A session as a list of records, which is only ever appended to: what was said, and what became of it. Pure.

A record is one line of JSON. A line that cannot be read (half of it was written when the machine went off) is left
out; what a call then has no result for is mended, since services refuse a call without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from codebutler_worker.agents.native.model import Assistant, Message, System, Told
from codebutler_worker.tools.outcome import PlanStep

VERSION = 1
INTERRUPTED = "(nobody knows what came of this call: it was cut off)"


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """The session began. Its first line."""

    at: str
    version: int = VERSION


class Said(msgspec.Struct, frozen=True, tag="said"):
    """One more message."""

    message: Message


class Planned(msgspec.Struct, frozen=True, tag="planned"):
    """The plan as it stands now."""

    steps: tuple[PlanStep, ...]


class Cleaned(msgspec.Struct, frozen=True, tag="cleaned"):
    """To make room, these messages stand for all before."""

    messages: tuple[Message, ...]


class Stood(msgspec.Struct, frozen=True, tag="stood"):
    """The terminal's directory at the end of a turn."""

    cwd: str


Record = Opened | Said | Planned | Cleaned | Stood


@dataclass(frozen=True, slots=True)
class History:
    """A session as it stands."""

    messages: tuple[Message, ...] = ()
    plan: tuple[PlanStep, ...] = ()
    cwd: str = ""


def after(history: History, record: Record) -> History:
    """The history with one record more."""
    match record:
        case Said(message):
            return replace(history, messages=(*history.messages, message))
        case Cleaned(messages):
            return replace(history, messages=messages)
        case Planned(steps):
            return replace(history, plan=steps)
        case Stood(cwd):
            return replace(history, cwd=cwd)
        case Opened():
            return history


def line(record: Record) -> bytes:
    """A record as it is kept."""
    return msgspec.json.encode(record) + b"\n"


def read(content: bytes) -> History | None:
    """The session that the lines tell of; None if they are no session of ours."""
    decoder = msgspec.json.Decoder(Record)
    history, opened = History(), False
    messages: list[Message] = []
    for each in content.split(b"\n"):
        try:
            record = decoder.decode(each)
        except (msgspec.DecodeError, UnicodeError):
            continue
        if isinstance(record, Said):
            messages.append(record.message)
            continue
        if isinstance(record, Cleaned):
            messages = list(record.messages)
        opened = opened or (isinstance(record, Opened) and record.version == VERSION)
        history = after(history, record)
    mended_ = mended(messages)
    if not opened or not mended_ or not isinstance(mended_[0], System):
        return None
    return replace(history, messages=tuple(mended_))


def mended(messages: Iterable[Message]) -> list[Message]:
    """With a result after each call, in the order of the calls, and none without its call."""
    found: list[Message] = []
    missing: list[str] = []
    for message in messages:
        if isinstance(message, Told):
            if message.call_id in missing:
                missing.remove(message.call_id)
                found.append(message)
            continue
        found += [Told(call_id, INTERRUPTED) for call_id in missing]
        missing = [call.id for call in message.calls] if isinstance(message, Assistant) else []
        found.append(message)
    return found + [Told(call_id, INTERRUPTED) for call_id in missing]
