"""pins.*: a channel's pinned messages."""

from __future__ import annotations

from codebutler.workspace import render
from codebutler.workspace.records import Channel, Json, Message, MethodError
from codebutler.workspace.responses import Call, Method

MAX_PINS = 100


def add(call: Call) -> Json:
    """Raises MethodError already_pinned, too_many_pins, message_not_found."""
    channel, message = _target(call)
    if message.ts in channel.pins:
        raise MethodError("already_pinned")
    if len(channel.pins) >= MAX_PINS:
        raise MethodError("too_many_pins")
    channel.pins[message.ts] = (call.actor.id, call.workspace.now_s())
    _tell(call, channel, message, "pin_added")
    return {}


def remove(call: Call) -> Json:
    """Raises MethodError no_pin, message_not_found."""
    channel, message = _target(call)
    if message.ts not in channel.pins:
        raise MethodError("no_pin")
    _tell(call, channel, message, "pin_removed")
    del channel.pins[message.ts]
    return {}


def list_pins(call: Call) -> Json:
    """The newest pin first."""
    channel = call.joined_channel()
    return {"items": [_item(call, channel, ts) for ts in reversed(channel.pins) if ts in channel.messages]}


def _target(call: Call) -> tuple[Channel, Message]:
    channel = call.joined_channel()
    return channel, channel.message(call.params.needed("timestamp", "no_item_specified"))


def _item(call: Call, channel: Channel, ts: str) -> Json:
    by, when_s = channel.pins[ts]
    told = render.message(call.workspace, channel, channel.messages[ts])
    return {"type": "message", "channel": channel.id, "message": told, "created": when_s, "created_by": by}


def _tell(call: Call, channel: Channel, message: Message, kind: str) -> None:
    event = {
        "type": kind,
        "user": call.actor.id,
        "channel_id": channel.id,
        "item": _item(call, channel, message.ts),
        "item_user": message.user,
        "pin_count": str(len(channel.pins)),
    }
    call.house.announcer.happened(channel, event)


METHODS: dict[str, Method] = {"pins.add": add, "pins.remove": remove, "pins.list": list_pins}
