"""chat.scheduleMessage and its companions."""

from __future__ import annotations

import msgspec

from codebutler.workspace.methods.chat import check_message, post_message
from codebutler.workspace.params import Params, page
from codebutler.workspace.records import Json, MethodError
from codebutler.workspace.responses import Call, Method

# Slack: up to 120 days ahead, and thirty within five minutes in one channel.
MOST_AHEAD_S = 120 * 24 * 3600
WINDOW_S = 300
MOST_IN_WINDOW = 30


class Scheduled(msgspec.Struct, frozen=True, kw_only=True):
    """A message to post later. ``given``: the arguments of its chat.postMessage."""

    id: str
    channel: str
    user: str
    post_at_s: int
    created_s: int
    text: str
    given: Json


def schedule(call: Call) -> Json:
    """Raises MethodError invalid_time, time_in_past, time_too_far, restricted_too_many, and chat.postMessage's."""
    channel = call.posting_channel()
    post_at_s = _when(call)
    waiting = call.house.scheduled
    near = sum(
        1
        for other in waiting.values()
        if other.channel == channel.id and abs(other.post_at_s - post_at_s) < WINDOW_S
    )
    if near >= MOST_IN_WINDOW:
        raise MethodError("restricted_too_many")
    message = check_message(call, channel)
    scheduled = Scheduled(
        id=call.workspace.next_id("Q"),
        channel=channel.id,
        user=call.actor.id,
        post_at_s=post_at_s,
        created_s=call.workspace.now_s(),
        text=message.text,
        given={**call.params.values, "channel": channel.id},
    )
    waiting[scheduled.id] = scheduled
    call.house.hub.later(post_at_s - call.workspace.clock.now().timestamp(), lambda: _due(call, scheduled))
    told = {"type": "delayed_message", "user": call.actor.id, "text": message.text}
    return {
        "channel": channel.id,
        "scheduled_message_id": scheduled.id,
        "post_at": post_at_s,
        "message": told,
    }


def delete(call: Call) -> Json:
    """Raises MethodError invalid_scheduled_message_id."""
    channel = call.channel()
    found = call.house.scheduled.get(call.params.text("scheduled_message_id"))
    if found is None or found.channel != channel.id or found.user != call.actor.id:
        raise MethodError("invalid_scheduled_message_id")
    del call.house.scheduled[found.id]
    return {}


def list_scheduled(call: Call) -> Json:
    """The caller's own, the next one first."""
    wanted = call.params.text("channel")
    own = [one for one in call.house.scheduled.values() if one.user == call.actor.id]
    own = sorted((one for one in own if wanted in ("", one.channel)), key=lambda one: one.post_at_s)
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


def _when(call: Call) -> int:
    given = call.params.text("post_at")
    if not given.isdecimal():
        raise MethodError("invalid_time")
    ahead_s = int(given) - call.workspace.now_s()
    if ahead_s <= 0:
        raise MethodError("time_in_past")
    if ahead_s > MOST_AHEAD_S:
        raise MethodError("time_too_far")
    return int(given)


def _due(call: Call, scheduled: Scheduled) -> None:
    """Post it, unless it was cancelled; one that has become impossible is dropped, as in Slack."""
    if call.house.scheduled.pop(scheduled.id, None) is None:
        return
    try:
        post_message(Call(call.house, call.user, Params(scheduled.given)))
    except MethodError:
        return


METHODS: dict[str, Method] = {
    "chat.scheduleMessage": schedule,
    "chat.deleteScheduledMessage": delete,
    "chat.scheduledMessages.list": list_scheduled,
}
