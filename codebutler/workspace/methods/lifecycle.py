"""conversations.* about a channel itself: its name, topic, archiving, and members leaving."""

from __future__ import annotations

from codebutler.workspace import render
from codebutler.workspace.records import Channel, Json, Message, MethodError, User, normal_ts
from codebutler.workspace.responses import Call, Method

MAX_TOPIC_CHARS = 250


def rename(call: Call) -> Json:
    """Slack lets an app rename only what it created."""
    channel = _channel(call)
    if call.actor.is_bot and channel.creator != call.actor.id:
        raise MethodError("not_authorized")
    name, old = call.params.text("name"), channel.name
    if name != old:
        call.workspace.check_name(name)
        channel.name = name
        _note(call, channel, "channel_name", f'has renamed the channel from "{old}" to "{name}"')
        told = {
            "id": channel.id,
            "name": name,
            "name_normalized": name,
            "created": channel.created_s,
            "is_channel": True,
            "is_mpim": False,
        }
        call.house.announcer.happened(channel, {"type": "channel_rename", "channel": told})
    return {"channel": render.conversation(channel, call.actor)}


def archive(call: Call) -> Json:
    """conversations.archive: nobody can act in it from now on.

    Raises MethodError already_archived, method_not_supported_for_channel_type.
    """
    channel = call.channel()
    if channel.is_im:
        raise MethodError("method_not_supported_for_channel_type")
    if channel.is_archived:
        raise MethodError("already_archived")
    _note(call, channel, "channel_archive", "archived the channel")
    channel.is_archived = True
    told = {"type": "channel_archive", "channel": channel.id, "user": call.actor.id}
    call.house.announcer.happened(channel, told)
    return {}


def unarchive(call: Call) -> Json:
    """conversations.unarchive; members are still members. Raises MethodError not_archived."""
    channel = call.channel()
    if not channel.is_archived:
        raise MethodError("not_archived")
    channel.is_archived = False
    _note(call, channel, "channel_unarchive", "un-archived the channel")
    told = {"type": "channel_unarchive", "channel": channel.id, "user": call.actor.id}
    call.house.announcer.happened(channel, told)
    return {}


def leave(call: Call) -> Json:
    """conversations.leave; for a non-member it is a warning, not an error."""
    channel = _channel(call)
    if call.actor.id not in channel.members:
        return {"not_in_channel": True}
    _dismiss(call, channel, call.actor)
    return {}


def kick(call: Call) -> Json:
    """conversations.kick: removes another member.

    Raises MethodError cant_kick_self, not_in_channel, user_not_found.
    """
    channel = _channel(call)
    user = call.workspace.user(call.params.needed("user", "user_not_found"))
    if user.id == call.actor.id:
        raise MethodError("cant_kick_self")
    if user.id not in channel.members:
        raise MethodError("not_in_channel")
    _dismiss(call, channel, user)
    return {}


def set_topic(call: Call) -> Json:
    """conversations.setTopic, with a notice in the channel. Raises MethodError too_long."""
    channel = _channel(call)
    channel.topic = _short(call, "topic")
    _note(call, channel, "channel_topic", f"set the channel topic: {channel.topic}")
    return {"channel": render.conversation(channel, call.actor)}


def set_purpose(call: Call) -> Json:
    """conversations.setPurpose, with a notice in the channel. Raises MethodError too_long."""
    channel = _channel(call)
    channel.purpose = _short(call, "purpose")
    _note(call, channel, "channel_purpose", f"set the channel description: {channel.purpose}")
    return {"channel": render.conversation(channel, call.actor)}


def close(call: Call) -> Json:
    """Hides a direct conversation; its messages stay."""
    if not call.channel().is_im:
        raise MethodError("method_not_supported_for_channel_type")
    return {}


def mark(call: Call) -> Json:
    """Only the reader's own pages get an event, as with Slack's clients."""
    channel = call.channel()
    ts = normal_ts(call.params.needed("ts", "invalid_timestamp"))
    channel.read[call.actor.id] = ts
    call.house.announcer.marked(channel, call.actor, ts)
    return {}


def _channel(call: Call) -> Channel:
    channel = call.channel()
    if channel.is_im:
        raise MethodError("method_not_supported_for_channel_type")
    if channel.is_archived:
        raise MethodError("is_archived")
    return channel


def _short(call: Call, name: str) -> str:
    text = call.params.text(name)
    if len(text) > MAX_TOPIC_CHARS:
        raise MethodError("too_long")
    return text


def _dismiss(call: Call, channel: Channel, user: User) -> None:
    """Remove a member. The app itself gets ``channel_left`` and no other event about it.

    Source: Slack's staff and users in its SDKs' issues (bolt-js 1847, node-slack-sdk 931).
    """
    if user.id == call.workspace.bot.id:
        channel.members.discard(user.id)
        told = {"type": "channel_left", "channel": channel.id, "actor_id": call.actor.id}
        call.house.announcer.happened(channel, told, told_anyway=True)
        return
    left = {
        "type": "member_left_channel",
        "user": user.id,
        "channel": channel.id,
        "channel_type": "C",
        "team": call.workspace.team_id,
    }
    channel.members.discard(user.id)
    _note(call, channel, "channel_leave", "has left the channel", by=user)
    call.house.announcer.happened(channel, left)


def _note(call: Call, channel: Channel, subtype: str, said: str, by: User | None = None) -> None:
    """A notice in the channel about a change of it, in Slack's wording."""
    user = by or call.actor
    message = Message(ts=call.workspace.next_ts(), user=user.id, text=f"<@{user.id}> {said}", subtype=subtype)
    channel.add(message)
    call.house.announcer.posted(channel, message)


METHODS: dict[str, Method] = {
    "conversations.rename": rename,
    "conversations.archive": archive,
    "conversations.unarchive": unarchive,
    "conversations.leave": leave,
    "conversations.kick": kick,
    "conversations.setTopic": set_topic,
    "conversations.setPurpose": set_purpose,
    "conversations.close": close,
    "conversations.mark": mark,
}
