"""What is done with messages: reactions.*, pins.*, search.messages and chat.scheduleMessage."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from codebutler.workspace import render
from codebutler.workspace.call import Call, Params, page
from codebutler.workspace.methods.chat import check_message, post_message
from codebutler.workspace.state import Channel, Json, Message, MethodError

NAME = re.compile(r"[a-z0-9_+'\-]{1,100}(::skin-tone-[2-6])?")
MAX_EMOJI = 23
MAX_PINS = 100
MAX_PER_PAGE = 100
# Slack: up to 120 days ahead, and thirty within five minutes in one channel.
MAX_AHEAD_S = 120 * 24 * 3600
WINDOW_S = 300
MAX_IN_WINDOW = 30


def add(call: Call) -> Json:
    """reactions.add: ``name`` with or without colons.

    Raises MethodError already_reacted, too_many_emoji, invalid_name, message_not_found.
    """
    channel, message, name = _target(call)
    users = message.reactions.get(name, [])
    if call.actor.id in users:
        raise MethodError("already_reacted")
    if name not in message.reactions and len(message.reactions) >= MAX_EMOJI:
        raise MethodError("too_many_emoji")
    message.reactions[name] = [*users, call.actor.id]
    call.context.announcer.reaction_changed(channel, message, call.actor, name, added=True)
    return {}


def remove(call: Call) -> Json:
    """reactions.remove: one's own only. Raises MethodError no_reaction, invalid_name, message_not_found."""
    channel, message, name = _target(call)
    users = message.reactions.get(name, [])
    if call.actor.id not in users:
        raise MethodError("no_reaction")
    message.reactions[name] = [user for user in users if user != call.actor.id]
    if not message.reactions[name]:
        del message.reactions[name]
    call.context.announcer.reaction_changed(channel, message, call.actor, name, added=False)
    return {}


def get(call: Call) -> Json:
    """reactions.get: the message with its reactions."""
    channel = call.channel()
    message = channel.message(call.params.required("timestamp", "no_item_specified"))
    return _item(call, channel, message)


def list_reactions(call: Call) -> Json:
    """Visible messages to which the caller, or the ``user`` given, has reacted; newest first."""
    user = call.workspace.user(call.params.text("user", call.actor.id))
    found = [
        (message.ts, channel)
        for channel in call.workspace.channels.values()
        if call.actor.id in channel.members
        for message in channel.messages.values()
        if any(user.id in users for users in message.reactions.values())
    ]
    shown, cursor = page(sorted(found, key=lambda one: one[0], reverse=True), call.params)
    items = [_item(call, channel, channel.messages[ts]) for ts, channel in shown]
    return {"items": items, "response_metadata": {"next_cursor": cursor}}


def _item(call: Call, channel: Channel, message: Message) -> Json:
    rendered = render.message(call.workspace, channel, message)
    return {"type": "message", "channel": channel.id, "message": rendered}


def _target(call: Call) -> tuple[Channel, Message, str]:
    channel = call.joined_channel()
    name = call.params.required("name", "invalid_name").strip(":")
    if not NAME.fullmatch(name):
        raise MethodError("invalid_name")
    return channel, channel.message(call.params.required("timestamp", "no_item_specified")), name


def pin(call: Call) -> Json:
    """Raises MethodError already_pinned, too_many_pins, message_not_found."""
    channel, message = _pin_target(call)
    if message.ts in channel.pins:
        raise MethodError("already_pinned")
    if len(channel.pins) >= MAX_PINS:
        raise MethodError("too_many_pins")
    channel.pins[message.ts] = (call.actor.id, call.workspace.now_s())
    _announce_pin(call, channel, message, "pin_added")
    return {}


def unpin(call: Call) -> Json:
    """Raises MethodError no_pin, message_not_found."""
    channel, message = _pin_target(call)
    if message.ts not in channel.pins:
        raise MethodError("no_pin")
    _announce_pin(call, channel, message, "pin_removed")
    del channel.pins[message.ts]
    return {}


def list_pins(call: Call) -> Json:
    """The newest pin first."""
    channel = call.joined_channel()
    return {"items": [_pinned(call, channel, ts) for ts in reversed(channel.pins) if ts in channel.messages]}


def _pin_target(call: Call) -> tuple[Channel, Message]:
    channel = call.joined_channel()
    return channel, channel.message(call.params.required("timestamp", "no_item_specified"))


def _pinned(call: Call, channel: Channel, ts: str) -> Json:
    by, when_s = channel.pins[ts]
    return {**_item(call, channel, channel.messages[ts]), "created": when_s, "created_by": by}


def _announce_pin(call: Call, channel: Channel, message: Message, kind: str) -> None:
    event = {
        "type": kind,
        "user": call.actor.id,
        "channel_id": channel.id,
        "item": _pinned(call, channel, message.ts),
        "item_user": message.user,
        "pin_count": str(len(channel.pins)),
    }
    call.context.announcer.channel_event(channel, event)


def search(call: Call) -> Json:
    """Newest first. Only people search: Slack gives bot tokens no right to."""
    if call.actor.is_bot:
        raise MethodError("not_allowed_token_type")
    query = call.params.required("query", "no_query")
    found = sorted(_search_matches(call, query.lower().split()), key=lambda pair: pair[1].ts, reverse=True)
    count, number = call.params.number("count", 20, MAX_PER_PAGE), call.params.number("page", 1, 100)
    shown = found[(number - 1) * count : number * count]
    return {
        "query": query,
        "messages": {
            "total": len(found),
            "matches": [_match(call, channel, message) for channel, message in shown],
            "paging": {"count": count, "total": len(found), "page": number, "pages": -(-len(found) // count)},
        },
    }


def _search_matches(call: Call, words: list[str]) -> Iterator[tuple[Channel, Message]]:
    inside = {word[3:].lstrip("#") for word in words if word.startswith("in:")}
    authors = {word[5:].lstrip("@") for word in words if word.startswith("from:")}
    text = [word for word in words if not word.startswith(("in:", "from:"))]
    names = {user.id: user.name.lower() for user in call.workspace.users.values()}
    for channel in call.workspace.channels.values():
        if (channel.is_hidden and call.actor.id not in channel.members) or (
            inside and channel.name not in inside
        ):
            continue
        for message in channel.messages.values():
            if message.is_tombstone or (authors and names.get(message.user) not in authors):
                continue
            content = _searchable_text(message).lower()
            if all(word in content for word in text):
                yield channel, message


def _searchable_text(message: Message) -> str:
    """A message's searchable text: its text, its Markdown, its files' names."""
    parts = [message.text, *(str(block.get("text") or "") for block in message.blocks)]
    return "\n".join([*parts, *(str(file.get("name")) for file in message.files)])


def _match(call: Call, channel: Channel, message: Message) -> Json:
    rendered = render.message(call.workspace, channel, message)
    user = call.workspace.users.get(message.user)
    return {
        **rendered,
        "iid": f"{channel.id}-{message.ts}",
        "username": user.name if user else "",
        "channel": {"id": channel.id, "name": channel.name, "is_im": channel.is_im},
        "permalink": f"{call.context.url}/archives/{channel.id}/p{message.ts.replace('.', '')}",
    }


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A message to post later. ``arguments``: the arguments of its chat.postMessage."""

    id: str
    channel: str
    user: str
    post_at_s: int
    created_s: int
    text: str
    arguments: Json


def schedule(call: Call) -> Json:
    """Raises MethodError invalid_time, time_in_past, time_too_far, restricted_too_many, and chat.postMessage's."""
    channel = call.posting_channel()
    post_at_s = _post_at(call)
    waiting = call.context.scheduled
    near = sum(
        1
        for other in waiting.values()
        if other.channel == channel.id and abs(other.post_at_s - post_at_s) < WINDOW_S
    )
    if near >= MAX_IN_WINDOW:
        raise MethodError("restricted_too_many")
    message = check_message(call, channel)
    scheduled = Scheduled(
        id=call.workspace.next_id("Q"),
        channel=channel.id,
        user=call.actor.id,
        post_at_s=post_at_s,
        created_s=call.workspace.now_s(),
        text=message.text,
        arguments={**call.params.values, "channel": channel.id},
    )
    waiting[scheduled.id] = scheduled
    call.context.hub.call_later(
        post_at_s - call.workspace.clock.now().timestamp(), lambda: _post_scheduled(call, scheduled)
    )
    delayed = {"type": "delayed_message", "user": call.actor.id, "text": message.text}
    return {
        "channel": channel.id,
        "scheduled_message_id": scheduled.id,
        "post_at": post_at_s,
        "message": delayed,
    }


def cancel(call: Call) -> Json:
    """Raises MethodError invalid_scheduled_message_id."""
    channel = call.channel()
    found = call.context.scheduled.get(call.params.text("scheduled_message_id"))
    if found is None or found.channel != channel.id or found.user != call.actor.id:
        raise MethodError("invalid_scheduled_message_id")
    del call.context.scheduled[found.id]
    return {}


def list_scheduled(call: Call) -> Json:
    """The caller's own, the next one first."""
    channel_id = call.params.text("channel")
    own = [one for one in call.context.scheduled.values() if one.user == call.actor.id]
    own = sorted((one for one in own if channel_id in ("", one.channel)), key=lambda one: one.post_at_s)
    shown, cursor = page(own, call.params)
    return {
        "scheduled_messages": [
            {
                "id": one.id,
                "channel_id": one.channel,
                "post_at": one.post_at_s,
                "date_created": one.created_s,
                "text": one.text,
            }
            for one in shown
        ],
        "response_metadata": {"next_cursor": cursor},
    }


def _post_at(call: Call) -> int:
    text = call.params.text("post_at")
    if not text.isdecimal():
        raise MethodError("invalid_time")
    ahead_s = int(text) - call.workspace.now_s()
    if ahead_s <= 0:
        raise MethodError("time_in_past")
    if ahead_s > MAX_AHEAD_S:
        raise MethodError("time_too_far")
    return int(text)


def _post_scheduled(call: Call, scheduled: Scheduled) -> None:
    """Post it, unless it was cancelled; one that has become impossible is dropped, as in Slack."""
    if call.context.scheduled.pop(scheduled.id, None) is None:
        return
    try:
        post_message(Call(call.context, call.user, Params(scheduled.arguments)))
    except MethodError:
        return
