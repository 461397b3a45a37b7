"""What answers of the Web API hold; a value that is missing or of another type reads as empty. And the operation id in
a message's metadata: how a message of ours is recognised when its answer was lost; and the ts, which is
a message's name, time and order at once. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypedDict

from msgspec import Struct

from codebutler.chat.fields import PayloadError, section, text_in
from codebutler.chat.people import Person
from codebutler.chat.port import HistoryPage, Identity, Own, OwnPage
from codebutler.domain.errors import ChatError

_TS = re.compile(r"\d{1,20}\.\d{1,20}")
EVENT_TYPE = "codebutler_operation"


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


def operation_metadata(op_id: str) -> dict[str, Any]:
    """Slack: message metadata, readable by every app in the workspace, so it holds the id and no more."""
    return {"event_type": EVENT_TYPE, "event_payload": {"op_id": op_id}}


def op_id_of(message: Mapping[str, Any]) -> str | None:
    """The operation that made ``message``, if one of ours did and says so."""
    metadata = message.get("metadata")
    if not isinstance(metadata, Mapping) or metadata.get("event_type") != EVENT_TYPE:
        return None
    payload = metadata.get("event_payload")
    op_id = payload.get("op_id") if isinstance(payload, Mapping) else None
    return op_id if isinstance(op_id, str) else None


def own_in(page: HistoryPage, bot_id: str) -> OwnPage:
    """The messages on the page that ``bot_id`` wrote."""
    found = []
    for message in page.messages:
        op_id = op_id_of(message.raw) or ""
        # Of a token Slack may not say whose it is: then metadata has to do.
        is_ours = message.raw.get("bot_id") == bot_id if bot_id else bool(op_id)
        if is_ours and message.ts:
            found.append(Own(ts=message.ts, op_id=op_id, is_file=bool(message.raw.get("files"))))
    return OwnPage(messages=tuple(found), next_cursor=page.next_cursor)


class ChannelInfo(Struct, frozen=True, kw_only=True):
    """A channel as the bot sees it."""

    id: str
    name: str
    is_private: bool = False
    is_member: bool = False
    is_archived: bool = False


def cursor_in(answer: Mapping[str, Any]) -> str:
    """Where the next page begins, "" if this was the last."""
    metadata = answer.get("response_metadata")
    return text_in(metadata, "next_cursor") if isinstance(metadata, Mapping) else ""


def identity_in(answer: Mapping[str, Any]) -> Identity:
    """Who a token is. Slack: auth.test."""
    return Identity(
        user_id=text_in(answer, "user_id"),
        bot_id=text_in(answer, "bot_id"),
        team_id=text_in(answer, "team_id"),
        team=text_in(answer, "team"),
        url=text_in(answer, "url"),
    )


def shares_in(info: Mapping[str, Any]) -> frozenset[str]:
    """The channels a file was shared in. Slack: the file object's channels, groups, ims and shares."""
    found: set[str] = set()
    for name in ("channels", "groups", "ims"):
        listed = info.get(name)
        found.update(each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, str))
    for places in section(info, "shares").values():
        found.update(places if isinstance(places, Mapping) else ())
    return frozenset(found)


def channel_of(data: object) -> ChannelInfo:
    """A channel's own object. Raises ChatError where there is none."""
    if not isinstance(data, Mapping):
        raise ChatError("Slack described no channel", "channel_not_found")
    return ChannelInfo(
        id=text_in(data, "id"),
        name=text_in(data, "name"),
        is_private=data.get("is_private") is True,
        is_member=data.get("is_member") is True,
        is_archived=data.get("is_archived") is True,
    )


def person_of(data: object) -> Person:
    """A user's own object. Raises ChatError where there is none. Slack: users.info."""
    if not isinstance(data, Mapping):
        raise ChatError("Slack described no user", "user_not_found")
    profile = data.get("profile")
    profile = profile if isinstance(profile, Mapping) else {}
    names = (
        text_in(profile, "display_name"),
        text_in(profile, "real_name"),
        text_in(data, "real_name"),
        text_in(data, "name"),
    )
    return Person(
        id=text_in(data, "id"),
        names=tuple(dict.fromkeys(name for name in names if name)),
        is_bot=data.get("is_bot") is True or text_in(data, "id") == "USLACKBOT",
        is_deleted=data.get("deleted") is True,
    )
