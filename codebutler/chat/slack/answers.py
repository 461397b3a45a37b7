"""Parses Web API responses; a value that is missing or of the wrong type reads as empty. Also the operation ID in a
message's metadata, which identifies a message of ours when its response was lost, and the ts, which is a message's
name, time and order at once. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from codebutler.chat.payload import PayloadError, section, text_in
from codebutler.chat.people import Person
from codebutler.chat.port import HistoryPage, Identity, Own, OwnPage
from codebutler.domain.errors import ChatError
from codebutler.domain.refs import NO_PERSON, ConversationRef, MessageRef, PersonRef

_TS = re.compile(r"\d{1,20}\.\d{1,20}")
EVENT_TYPE = "codebutler_operation"
DIRECT = "D"
"""The IDs of people's direct conversations with us start with it."""


def ts_at(moment_s: float) -> str:
    """A Unix time as Slack writes it; ``float`` of that is exact."""
    return f"{max(0.0, moment_s):017.6f}"


def thread_of(message: Mapping[str, Any]) -> MessageRef | None:
    """The thread that a reply belongs to; a thread's first message names itself and is not a reply. Raises
    PayloadError."""
    thread_ts = message.get("thread_ts")
    return None if thread_ts is None or thread_ts == message.get("ts") else ts_of(thread_ts)


def ts_of(value: object) -> MessageRef:
    """A message's timestamp as Slack writes it. Raises PayloadError."""
    if not isinstance(value, str) or not _TS.fullmatch(value):
        raise PayloadError("a payload without a usable message timestamp")
    return MessageRef(value)


def is_recording(subtype: str, name: str) -> bool:
    """Whether Slack's recorder made a file: it marks its clips, whose type is sometimes video or missing."""
    return subtype == "slack_audio" or name.lower().startswith("audio_message")


def operation_metadata(op_id: str) -> dict[str, Any]:
    """Slack: message metadata. Every app in the workspace can read it, so it holds only the ID."""
    return {"event_type": EVENT_TYPE, "event_payload": {"op_id": op_id}}


def op_id_of(message: Mapping[str, Any]) -> str | None:
    """The operation that posted ``message``, if it was one of ours and the metadata names it."""
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
        # Slack may not say which bot a token belongs to: then metadata must be enough.
        is_ours = message.raw.get("bot_id") == bot_id if bot_id else bool(op_id)
        if is_ours and message.ref:
            found.append(Own(ref=message.ref, op_id=op_id, is_file=bool(message.raw.get("files"))))
    return OwnPage(messages=tuple(found), next_cursor=page.next_cursor)


class ChannelInfo(Struct, frozen=True, kw_only=True):
    """A channel as the bot sees it. ``created_s``: a Unix time."""

    id: ConversationRef
    name: str
    is_private: bool = False
    is_member: bool = False
    is_archived: bool = False
    creator: PersonRef = NO_PERSON
    created_s: float = 0.0


def cursor_in(answer: Mapping[str, Any]) -> str:
    """The cursor of the next page, "" if this was the last."""
    metadata = answer.get("response_metadata")
    return text_in(metadata, "next_cursor") if isinstance(metadata, Mapping) else ""


def identity_in(answer: Mapping[str, Any]) -> Identity:
    """Whom a token belongs to. Slack: auth.test."""
    return Identity(
        user_id=PersonRef(text_in(answer, "user_id")),
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
    """A channel's own object. Raises ChatError if there is none."""
    if not isinstance(data, Mapping):
        raise ChatError("Slack described no channel", "channel_not_found")
    return ChannelInfo(
        id=ConversationRef(text_in(data, "id")),
        name=text_in(data, "name"),
        is_private=data.get("is_private") is True,
        is_member=data.get("is_member") is True,
        is_archived=data.get("is_archived") is True,
        creator=PersonRef(text_in(data, "creator")),
        created_s=float(created) if isinstance(created := data.get("created"), int | float) else 0.0,
    )


def person_of(data: object) -> Person:
    """A user's own object. Raises ChatError if there is none. Slack: users.info."""
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
        id=PersonRef(text_in(data, "id")),
        names=tuple(dict.fromkeys(name for name in names if name)),
        is_bot=data.get("is_bot") is True or text_in(data, "id") == "USLACKBOT",
        is_deleted=data.get("deleted") is True,
    )
