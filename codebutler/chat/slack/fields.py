"""Reading Slack's JSON field by field: what is missing or of another type is a PayloadError, never a crash. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from codebutler.domain.errors import CodeButlerError

_TS = re.compile(r"\d{1,20}\.\d{1,20}")
_SURROGATES = re.compile("[\ud800-\udfff]")


class PayloadError(CodeButlerError):
    """Slack sent a payload of an unknown shape."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing for us, and why."""

    reason: str


class Written(TypedDict):
    """What we know of whatever was written in a channel, by its ts."""

    channel: str
    sent_at: float
    order: str
    is_direct: bool


def written(channel: str, ts: str) -> Written:
    """A ts is all in one: the name of a message, its time and its order."""
    return Written(channel=channel, sent_at=seconds_of(ts), order=ts, is_direct=is_direct(channel))


def is_direct(channel: str) -> bool:
    """Whether it is somebody's direct conversation with us: the IDs of those begin with D."""
    return channel.startswith("D")


def seconds_of(ts: str) -> float:
    """When a message was written; exact: ``ts_at`` makes the same ts of it."""
    return float(ts)


def ts_at(moment_s: float) -> str:
    """Seconds since the epoch as Slack writes them."""
    return f"{max(0.0, moment_s):017.6f}"


def thread_of(message: Mapping[str, Any]) -> str | None:
    """The thread a message is a reply in; a thread's first message names itself and is no reply.

    Raises PayloadError.
    """
    thread_ts = message.get("thread_ts")
    return None if thread_ts is None or thread_ts == message.get("ts") else ts_of(thread_ts)


def ts_of(value: object) -> str:
    """A message's timestamp as Slack writes it. Raises PayloadError."""
    if not isinstance(value, str) or not _TS.fullmatch(value):
        raise PayloadError("a payload without a usable message timestamp")
    return value


def required(data: Mapping[str, Any], name: str) -> str:
    """The text under ``name``. Raises PayloadError where there is none."""
    if not (value := optional(data, name)):
        raise PayloadError(f"a payload without {name}")
    return value


def optional(data: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, cleaned; "" where there is none. Raises PayloadError for another type."""
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PayloadError(f"a payload whose {name} is no text")
    return clean(value)


def mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``. Raises PayloadError where there is none."""
    value = data.get(name)
    if not isinstance(value, Mapping):
        raise PayloadError(f"a payload without {name}")
    return value


def section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under ``name``; an empty one where there is none."""
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def clean(text: str) -> str:
    """NUL ends strings in the programs we start, and half a surrogate pair cannot be stored."""
    return _SURROGATES.sub("�", text.replace("\0", ""))
