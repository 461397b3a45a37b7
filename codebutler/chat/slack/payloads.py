"""Parses Slack's JSON into our events. Pure; a payload of an unknown shape is a PayloadError, never a crash.

Shapes: Slack Events API (message and its subtypes, app_mention), interactive payloads (block_actions) and
slash commands. Texts come entity-escaped and are returned unescaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from msgspec import Struct

from codebutler.chat.payload import (
    Ignored,
    PayloadError,
    clean,
    mapping,
    mappings,
    optional,
    required,
    section,
    size,
)
from codebutler.chat.port import ChannelMoved, Identity
from codebutler.chat.slack.answers import DIRECT, is_recording, thread_of, ts_of
from codebutler.chat.slack.forms import FormAsked, PressedInVain, interaction
from codebutler.chat.slack.missed import ShownMessage
from codebutler.chat.slack.mrkdwn import unescape
from codebutler.domain.model import Event, File, MessageDeleted, MessageEdited, MessagePosted, SlashCommand
from codebutler.domain.refs import ConversationRef, PersonRef

# Subtypes of people's messages; every other subtype is a notice of the workspace or a program's.
SPOKEN = frozenset({"", "file_share", "thread_broadcast", "me_message"})
MOVES = {
    "channel_archive": "archived",
    "group_archive": "archived",
    "channel_unarchive": "back",
    "group_unarchive": "back",
    "channel_left": "left",
    "group_left": "left",
}
NOTICED = frozenset({*MOVES, "app_home_opened", "member_joined_channel"})
GONE_FILES = ("tombstone", "hidden_by_limit")
SLACKBOT = "USLACKBOT"


class HomeOpened(Struct, frozen=True):
    """Somebody opened the app's home."""

    user: PersonRef


Notice = HomeOpened | ChannelMoved | FormAsked | PressedInVain
"""Notices, which need not be stored."""


def parse_envelope(kind: str, payload: Mapping[str, Any], me: Identity) -> Event | Notice | Ignored:
    """The event in a Socket Mode envelope of type ``kind``. Raises PayloadError for a malformed one."""
    match kind, payload:
        case "slash_commands", _:
            return _slash(payload)
        case "interactive", _:
            return interaction(payload)
        case "events_api", {"event": {"type": "message", "subtype": "message_changed"} as event}:
            return _changed(event, me)
        case "events_api", {"event": {"type": "message", "subtype": "message_deleted"} as event}:
            return _deleted(event, event.get("previous_message"), event.get("deleted_ts"), me)
        case "events_api", {"event": {"type": "message" | "app_mention" as spoken} as event}:
            channel = ConversationRef(required(event, "channel"))
            return _posted(event, channel, me, mentioned=spoken == "app_mention")
        case "events_api", {"event": {"type": str(noticed)} as event} if noticed in NOTICED:
            return _notice(event, me)
        case "events_api", {"event": dict(event)}:
            return Ignored(f"event type {clean(str(event.get('type')))[:40]}")
        case "events_api", _:
            raise PayloadError("a payload without event")
    return Ignored(f"envelope type {clean(kind)[:40]}")


def shown(message: Mapping[str, Any], channel: ConversationRef, me: Identity) -> ShownMessage:
    """A message of the history with its edits and replies. Raises PayloadError without a usable ts."""
    edited = section(message, "edited")
    latest = message.get("latest_reply")
    try:
        event = _posted(message, channel, me)
    except PayloadError:
        event = Ignored("a message of an unknown shape")
    return ShownMessage(
        ts=ts_of(message.get("ts")),
        event=event if isinstance(event, MessagePosted) else None,
        edited_ts=ts_of(edited.get("ts")) if edited else "",
        edited_by=PersonRef(optional(edited, "user")),
        latest_reply=ts_of(latest) if latest else "",
        gone=message.get("subtype") == "tombstone",
        marks=frozenset(
            str(each.get("name")) for each in mappings(message, "reactions") if _names(each.get("users"), me)
        ),
        replied=_names(message.get("reply_users"), me),
    )


def _names(users: object, me: Identity) -> bool:
    return isinstance(users, list) and me.user_id in users


def _notice(event: Mapping[str, Any], me: Identity) -> Notice | Ignored:
    kind = required(event, "type")
    if kind == "app_home_opened" and event.get("tab") == "home":
        return HomeOpened(PersonRef(required(event, "user")))
    if kind in MOVES:
        return ChannelMoved(ConversationRef(required(event, "channel")), MOVES[kind])
    if kind == "member_joined_channel" and event.get("user") == me.user_id:
        return ChannelMoved(ConversationRef(required(event, "channel")), "back")
    return Ignored(f"event type {kind}")


def _posted(
    message: Mapping[str, Any], channel: ConversationRef, me: Identity, *, mentioned: bool = False
) -> MessagePosted | Ignored:
    if (stranger := _not_a_person(message, me)) is not None:
        return stranger
    subtype = optional(message, "subtype")
    if subtype not in SPOKEN:
        return Ignored(f"message subtype {subtype[:40]}")
    text = optional(message, "text")
    has_markup = "<" in text or "&" in text
    ts = ts_of(message.get("ts"))
    return MessagePosted(
        channel=channel,
        sent_at=float(ts),
        order=ts,
        is_direct=channel.startswith(DIRECT),
        ref=ts,
        user=PersonRef(required(message, "user")),
        text=_spoken(text, me) if has_markup else text,
        thread=thread_of(message) if "thread_ts" in message else None,
        files=_files(message) if "files" in message else (),
        mentioned=mentioned or (has_markup and _mention(me).search(text) is not None),
    )


def _changed(event: Mapping[str, Any], me: Identity) -> Event | Ignored:
    message = mapping(event, "message")
    previous = event.get("previous_message")
    before: Mapping[str, Any] = previous if isinstance(previous, Mapping) else {}
    if message.get("subtype") == "tombstone":
        # Slack does not delete the first message of a thread with replies, it empties it.
        return _deleted(event, before, message.get("ts"), me)
    if (stranger := _not_a_person(message, me)) is not None:
        return stranger
    text = optional(message, "text")
    if before and text == optional(before, "text"):
        return Ignored("a change that leaves the text as it was (a link preview)")
    edited = message.get("edited")
    edit: Mapping[str, Any] = edited if isinstance(edited, Mapping) else {}
    edited_ts = ts_of(edit.get("ts") or event.get("event_ts") or event.get("ts"))
    channel = ConversationRef(required(event, "channel"))
    return MessageEdited(
        channel=channel,
        sent_at=float(edited_ts),
        order=edited_ts,
        is_direct=channel.startswith(DIRECT),
        ref=ts_of(message.get("ts")),
        user=PersonRef(optional(edit, "user") or required(message, "user")),
        text=_spoken(text, me),
        edit=edited_ts,
        thread=thread_of(message),
    )


def _deleted(event: Mapping[str, Any], previous: object, ts: object, me: Identity) -> Event | Ignored:
    if not isinstance(previous, Mapping):
        return Ignored("the deletion of a message that Slack does not describe")
    if (stranger := _not_a_person(previous, me)) is not None:
        return stranger
    deleted_ts = ts_of(ts)
    channel = ConversationRef(required(event, "channel"))
    # The history does not say when it was deleted: assume right after the message itself.
    return MessageDeleted(
        channel=channel,
        sent_at=float(deleted_ts),
        order=deleted_ts,
        is_direct=channel.startswith(DIRECT),
        ref=deleted_ts,
        user=PersonRef(required(previous, "user")),
        thread=thread_of(previous),
    )


def _not_a_person(message: Mapping[str, Any], me: Identity) -> Ignored | None:
    """Bots never start work: two of them would talk for ever, and ours would answer itself."""
    user = message.get("user")
    if user == me.user_id or (me.bot_id and message.get("bot_id") == me.bot_id):
        return Ignored("our own message")
    if message.get("bot_id") or message.get("bot_profile") or message.get("subtype") == "bot_message":
        return Ignored("a bot's message")
    if user == SLACKBOT:
        return Ignored("Slackbot's message")
    return None


def _slash(payload: Mapping[str, Any]) -> SlashCommand:
    channel = ConversationRef(required(payload, "channel_id"))
    return SlashCommand(
        channel=channel,
        is_direct=channel.startswith(DIRECT),
        user=PersonRef(required(payload, "user_id")),
        command=required(payload, "command"),
        text=unescape(optional(payload, "text")).strip(),
        invocation=required(payload, "trigger_id"),
    )


def _files(message: Mapping[str, Any]) -> tuple[File, ...]:
    found = mappings(message, "files")
    return tuple(_file(each) for each in found if optional(each, "id") and each.get("mode") not in GONE_FILES)


def _file(file: Mapping[str, Any]) -> File:
    return File(
        id=optional(file, "id"),
        name=optional(file, "name"),
        mimetype=optional(file, "mimetype"),
        size_bytes=size(file, "size"),
        url=optional(file, "url_private_download") or optional(file, "url_private"),
        is_voice=is_recording(optional(file, "subtype"), optional(file, "name")),
    )


def _spoken(text: str, me: Identity) -> str:
    """The text for us: without the mention that addresses us, and unescaped."""
    leading = re.compile(rf"\s*{_mention(me).pattern}[ \t]*[:,]?[ \t]*")
    if me.user_id and (match := leading.match(text)):
        text = text[match.end() :]
    return unescape(text)


@cache
def _mention(me: Identity) -> re.Pattern[str]:
    return re.compile(rf"<@{re.escape(me.user_id or 'nobody')}(?:\|[^<>]*)?>")
