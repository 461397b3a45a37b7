"""Slack's JSON to our events. Pure; a payload of an unknown shape is an error of its own, never a crash.

Shapes: Slack Events API (message and its subtypes, app_mention), interactive payloads (block_actions) and
slash commands. Texts come entity-escaped and leave unescaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codebutler.errors import CodeButlerError
from codebutler.intake.catchup import Shown
from codebutler.model import (
    ButtonClicked,
    Event,
    File,
    MessageDeleted,
    MessageEdited,
    MessagePosted,
    SlashCommand,
)
from codebutler.slack.channels import ChannelMoved
from codebutler.slack.port import Identity
from codebutler.text.escape import unescape

# Subtypes in which a person speaks; every other subtype is a notice of the workspace or somebody's program.
SPOKEN = frozenset({"", "file_share", "thread_broadcast", "me_message"})
MOVES = {
    "channel_archive": "archived",
    "group_archive": "archived",
    "channel_unarchive": "back",
    "group_unarchive": "back",
    "channel_left": "left",
    "group_left": "left",
}
GONE_FILES = frozenset({"tombstone", "hidden_by_limit"})
SLACKBOT = "USLACKBOT"

_TS = re.compile(r"\d{1,20}\.\d{1,20}")
_SURROGATES = re.compile("[\ud800-\udfff]")


class PayloadError(CodeButlerError):
    """Slack sent a payload of an unknown shape."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing for us, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class HomeOpened:
    """Somebody looks at the app's home."""

    user: str


Notice = HomeOpened | ChannelMoved
"""What is good to know and need not be kept."""


def parse_envelope(kind: str, payload: Mapping[str, Any], me: Identity) -> Event | Notice | Ignored:
    """The event in a Socket Mode envelope of type ``kind``. Raises PayloadError for a malformed one."""
    match kind:
        case "events_api":
            return _event(_mapping(payload, "event"), me)
        case "slash_commands":
            return _slash(payload)
        case "interactive":
            return _interactive(payload)
    return Ignored(f"envelope type {_clean(kind)[:40]}")


def from_history(message: Mapping[str, Any], channel: str, me: Identity) -> MessagePosted | Ignored:
    """A message as conversations.history and conversations.replies tell it. Raises PayloadError."""
    return _posted(message, channel, me)


def shown(message: Mapping[str, Any], channel: str, me: Identity) -> Shown:
    """A message of history with what it tells of its life. Raises PayloadError without a usable ts."""
    edited = _section(message, "edited")
    latest = message.get("latest_reply")
    try:
        event = from_history(message, channel, me)
    except PayloadError:
        event = Ignored("a message of an unknown shape")
    return Shown(
        ts=_ts(message.get("ts")),
        event=event if isinstance(event, MessagePosted) else None,
        edited_ts=_ts(edited.get("ts")) if edited else "",
        edited_by=_optional(edited, "user"),
        latest_reply=_ts(latest) if latest else "",
        gone=message.get("subtype") == "tombstone",
    )


def _event(event: Mapping[str, Any], me: Identity) -> Event | Notice | Ignored:
    kind = event.get("type")
    if kind == "app_mention":
        return _posted(event, _required(event, "channel"), me, mentioned=True)
    if kind == "app_home_opened" and event.get("tab") == "home":
        return HomeOpened(_required(event, "user"))
    if isinstance(kind, str) and kind in MOVES:
        return ChannelMoved(_required(event, "channel"), MOVES[kind])
    if kind == "member_joined_channel" and event.get("user") == me.user_id:
        return ChannelMoved(_required(event, "channel"), "back")
    if kind != "message":
        return Ignored(f"event type {_clean(str(kind))[:40]}")
    match event.get("subtype"):
        case "message_changed":
            return _changed(event, me)
        case "message_deleted":
            previous = event.get("previous_message")
            return _deleted(event, previous, event.get("deleted_ts"), me)
    return _posted(event, _required(event, "channel"), me)


def _posted(
    message: Mapping[str, Any], channel: str, me: Identity, *, mentioned: bool = False
) -> MessagePosted | Ignored:
    if (stranger := _not_a_person(message, me)) is not None:
        return stranger
    subtype = _optional(message, "subtype")
    if subtype not in SPOKEN:
        return Ignored(f"message subtype {subtype[:40]}")
    text = _optional(message, "text")
    return MessagePosted(
        channel=channel,
        ts=_ts(message.get("ts")),
        user=_required(message, "user"),
        text=_spoken(text, me),
        thread_ts=_thread_ts(message),
        files=_files(message.get("files")),
        mentioned=mentioned or _mention(me).search(text) is not None,
    )


def _changed(event: Mapping[str, Any], me: Identity) -> Event | Ignored:
    message = _mapping(event, "message")
    previous = event.get("previous_message")
    before: Mapping[str, Any] = previous if isinstance(previous, Mapping) else {}
    if message.get("subtype") == "tombstone":
        # The first message of a thread that has replies is not deleted but emptied.
        return _deleted(event, before, message.get("ts"), me)
    if (stranger := _not_a_person(message, me)) is not None:
        return stranger
    text = _optional(message, "text")
    if before and text == _optional(before, "text"):
        return Ignored("a change that leaves the text as it was (a link preview)")
    edited = message.get("edited")
    edit: Mapping[str, Any] = edited if isinstance(edited, Mapping) else {}
    return MessageEdited(
        channel=_required(event, "channel"),
        ts=_ts(message.get("ts")),
        user=_optional(edit, "user") or _required(message, "user"),
        text=_spoken(text, me),
        edited_ts=_ts(edit.get("ts") or event.get("event_ts") or event.get("ts")),
        thread_ts=_thread_ts(message),
    )


def _deleted(event: Mapping[str, Any], previous: object, ts: object, me: Identity) -> Event | Ignored:
    if not isinstance(previous, Mapping):
        return Ignored("the deletion of a message that Slack does not describe")
    if (stranger := _not_a_person(previous, me)) is not None:
        return stranger
    return MessageDeleted(
        channel=_required(event, "channel"),
        ts=_ts(ts),
        user=_required(previous, "user"),
        thread_ts=_thread_ts(previous),
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
    return SlashCommand(
        channel=_required(payload, "channel_id"),
        user=_required(payload, "user_id"),
        command=_required(payload, "command"),
        text=unescape(_optional(payload, "text")).strip(),
        trigger_id=_required(payload, "trigger_id"),
    )


def _interactive(payload: Mapping[str, Any]) -> ButtonClicked | Ignored:
    if payload.get("type") != "block_actions":
        return Ignored(f"interaction {_clean(str(payload.get('type')))[:40]}")
    actions = payload.get("actions")
    if not isinstance(actions, list) or not actions or not isinstance(actions[0], Mapping):
        raise PayloadError("a block_actions payload without an action")
    action = actions[0]
    container = _section(payload, "container")
    message = _section(payload, "message")
    channel = _optional(_section(payload, "channel"), "id") or _optional(container, "channel_id")
    if not channel:
        return Ignored("an interaction outside a channel")
    return ButtonClicked(
        channel=channel,
        user=_required(_mapping(payload, "user"), "id"),
        message_ts=_ts(container.get("message_ts") or message.get("ts")),
        action_id=_required(action, "action_id"),
        value=_value(action),
        action_ts=_required(action, "action_ts"),
        thread_ts=_thread_ts(message) or _thread_ts(container),
        user_name=_name(_mapping(payload, "user")),
    )


def _name(user: Mapping[str, Any]) -> str:
    """How people call somebody; "" where Slack does not say. It decides nothing."""
    name = user.get("name") or user.get("username")
    return _clean(name)[:80] if isinstance(name, str) else ""


def _value(action: Mapping[str, Any]) -> str:
    """A button's value, or what was chosen in a menu."""
    return _optional(action, "value") or _optional(_section(action, "selected_option"), "value")


def _files(files: object) -> tuple[File, ...]:
    if not isinstance(files, list):
        return ()
    return tuple(_file(f) for f in files if isinstance(f, Mapping) and _is_there(f))


def _is_there(file: Mapping[str, Any]) -> bool:
    return bool(_optional(file, "id")) and file.get("mode") not in GONE_FILES


def _file(file: Mapping[str, Any]) -> File:
    size = file.get("size")
    return File(
        id=_optional(file, "id"),
        name=_optional(file, "name"),
        mimetype=_optional(file, "mimetype"),
        size_bytes=size if isinstance(size, int) and not isinstance(size, bool) else 0,
        url=_optional(file, "url_private_download") or _optional(file, "url_private"),
        subtype=_optional(file, "subtype"),
    )


def _spoken(text: str, me: Identity) -> str:
    """What was said to us: without the mention that only calls us, and unescaped."""
    leading = re.compile(rf"\s*{_mention(me).pattern}[ \t]*[:,]?[ \t]*")
    if me.user_id and (match := leading.match(text)):
        text = text[match.end() :]
    return _clean(unescape(text))


def _mention(me: Identity) -> re.Pattern[str]:
    return re.compile(rf"<@{re.escape(me.user_id or 'nobody')}(?:\|[^<>]*)?>")


def _thread_ts(message: Mapping[str, Any]) -> str | None:
    """The thread a message is a reply in; a thread's first message names itself and is no reply."""
    thread_ts = message.get("thread_ts")
    return None if thread_ts is None or thread_ts == message.get("ts") else _ts(thread_ts)


def _ts(value: object) -> str:
    if not isinstance(value, str) or not _TS.fullmatch(value):
        raise PayloadError("a payload without a usable message timestamp")
    return value


def _required(data: Mapping[str, Any], name: str) -> str:
    if not (value := _optional(data, name)):
        raise PayloadError(f"a payload without {name}")
    return value


def _optional(data: Mapping[str, Any], name: str) -> str:
    """The text under ``name``, cleaned; "" where there is none. Raises PayloadError for another type."""
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise PayloadError(f"a payload whose {name} is no text")
    return _clean(value)


def _mapping(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    if not isinstance(value, Mapping):
        raise PayloadError(f"a payload without {name}")
    return value


def _section(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def _clean(text: str) -> str:
    """NUL ends strings in the programs we start, and half a surrogate pair cannot be stored."""
    return _SURROGATES.sub("�", text.replace("\0", ""))
