"""reactions.*"""

from __future__ import annotations

import re

from codebutler.workspace import render
from codebutler.workspace.params import page
from codebutler.workspace.records import Channel, Json, Message, MethodError
from codebutler.workspace.responses import Call, Method

NAME = re.compile(r"[a-z0-9_+'\-]{1,100}(::skin-tone-[2-6])?")
MAX_EMOJI = 23


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
    call.house.announcer.reacted(channel, message, call.actor, name, added=True)
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
    call.house.announcer.reacted(channel, message, call.actor, name, added=False)
    return {}


def get(call: Call) -> Json:
    """reactions.get: the message with its reactions."""
    channel = call.channel()
    message = channel.message(call.params.needed("timestamp", "no_item_specified"))
    told = render.message(call.workspace, channel, message)
    return {"type": "message", "channel": channel.id, "message": told}


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
    items = [
        {
            "type": "message",
            "channel": channel.id,
            "message": render.message(call.workspace, channel, channel.messages[ts]),
        }
        for ts, channel in shown
    ]
    return {"items": items, "response_metadata": {"next_cursor": cursor}}


def _target(call: Call) -> tuple[Channel, Message, str]:
    channel = call.joined_channel()
    name = call.params.needed("name", "invalid_name").strip(":")
    if not NAME.fullmatch(name):
        raise MethodError("invalid_name")
    return channel, channel.message(call.params.needed("timestamp", "no_item_specified")), name


METHODS: dict[str, Method] = {
    "reactions.add": add,
    "reactions.remove": remove,
    "reactions.get": get,
    "reactions.list": list_reactions,
}
