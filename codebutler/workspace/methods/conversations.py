"""conversations.*: channels, their members, names and topics, and their history."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from codebutler.workspace import render
from codebutler.workspace.call import Call, make_cursor, page, parse_cursor
from codebutler.workspace.state import Channel, Json, Message, MethodError, User, normalize_ts

MAX_INVITED = 100
# The ``types`` of the lists, by the ``channel_type`` of events.
CHANNEL_TYPES = {"im": "im", "group": "private_channel", "channel": "public_channel"}
MAX_TOPIC_CHARS = 250


def list_channels(call: Call) -> Json:
    """conversations.list: public channels and, if ``types`` asks for them, the caller's private ones."""
    return _channel_page(call, list(call.workspace.channels.values()))


def list_of_user(call: Call) -> Json:
    """The conversations of the caller, or of the ``user`` named."""
    user = call.workspace.user(call.params.text("user", call.actor.id))
    return _channel_page(
        call, [channel for channel in call.workspace.channels.values() if user.id in channel.members]
    )


def _channel_page(call: Call, channels: list[Channel]) -> Json:
    """A page of those that the caller may see and asked for."""
    types = call.params.text("types", "public_channel").split(",")
    known = [
        channel
        for channel in channels
        if (not channel.is_hidden or call.actor.id in channel.members)
        and CHANNEL_TYPES[channel.kind] in types
        and not (channel.is_archived and call.params.flag("exclude_archived"))
    ]
    shown, cursor = page(known, call.params)
    return {
        "channels": [render.conversation(channel, call.actor) for channel in shown],
        "response_metadata": {"next_cursor": cursor},
    }


def info(call: Call) -> Json:
    """conversations.info; a member who is a person also gets how far they have read."""
    channel = call.channel()
    rendered = render.conversation(channel, call.actor)
    if not call.actor.is_bot and call.actor.id in channel.members:
        rendered.update(render.unread(channel, call.actor))
    return {"channel": rendered}


def create(call: Call) -> Json:
    """conversations.create; the caller is its first member.

    Raises MethodError invalid_name_specials, invalid_name_required, name_taken.
    """
    is_private = call.params.flag("is_private")
    channel = call.workspace.create_channel(call.params.text("name"), call.actor.id, is_private=is_private)
    call.context.announcer.channel_created(channel)
    return {"channel": render.conversation(channel, call.actor)}


def join(call: Call) -> Json:
    """conversations.join; joining again is a warning only.

    Raises MethodError is_archived, method_not_supported_for_channel_type.
    """
    channel = _open_channel(call)
    already = call.actor.id in channel.members
    if not already:
        _add_member(call, channel, call.actor, inviter="")
    answer: Json = {"channel": render.conversation(channel, call.actor)}
    if already:
        answer.update(warning="already_in_channel", response_metadata={"warnings": ["already_in_channel"]})
    return answer


def invite(call: Call) -> Json:
    """conversations.invite: up to 100 people, by ID.

    Raises MethodError already_in_channel only where nobody new is among them, no_user, too_many_users,
    user_not_found.
    """
    channel = call.joined_channel()
    ids = [user_id for user_id in call.params.required("users", "no_user").split(",") if user_id]
    if len(ids) > MAX_INVITED:
        raise MethodError("too_many_users")
    users = [call.workspace.user(user_id) for user_id in ids]
    if all(user.id in channel.members for user in users):
        raise MethodError("already_in_channel")
    for user in users:
        if user.id not in channel.members:
            _add_member(call, channel, user, inviter=call.actor.id)
    return {"channel": render.conversation(channel, call.actor)}


def members(call: Call) -> Json:
    """conversations.members: user IDs, a page at a time."""
    found, cursor = page(sorted(call.channel().members), call.params)
    return {"members": found, "response_metadata": {"next_cursor": cursor}}


def open_conversation(call: Call) -> Json:
    """conversations.open: the direct conversation with one person, created if needed, or the ``channel``
    given.

    Raises MethodError too_many_users: there are no group conversations here.
    """
    ids = [user_id for user_id in call.params.text("users").split(",") if user_id]
    if call.params.has("channel"):
        channel = call.channel()
    elif len(ids) == 1:
        channel = call.workspace.open_im(call.actor.id, call.workspace.user(ids[0]).id)
    else:
        raise MethodError("users_list_not_supplied" if not ids else "too_many_users")
    return {"channel": render.conversation(channel, call.actor)}


def history(call: Call) -> Json:
    """Newest first, without the replies in threads."""
    channel = _readable_channel(call)
    low, high = _range(call, channel.timeline)
    if before := parse_cursor(call.params.text("cursor")):
        high = min(high, bisect_left(channel.timeline, before))
    first = max(low, high - call.params.number("limit", 100, 999))
    shown = channel.timeline[first:high][::-1]
    return _message_page(call, channel, shown, make_cursor(channel.timeline[first]) if first > low else "")


def replies(call: Call) -> Json:
    """The thread's first message, then its replies, oldest first; a page after the first has only replies."""
    channel = _readable_channel(call)
    ts = call.params.required("ts", "thread_not_found")
    root = channel.thread_root(ts)
    if root != ts:
        return _message_page(call, channel, [ts], "")
    known = channel.messages[root].replies
    low, high = _range(call, known)
    limit = call.params.number("limit", 1000, 1000)
    if after := parse_cursor(call.params.text("cursor")):
        low, shown = max(low, bisect_right(known, after)), []
    else:
        shown = [root]
    last = min(high, low + max(1, limit - len(shown)))
    shown += known[low:last]
    return _message_page(call, channel, shown, make_cursor(shown[-1]) if last < high else "")


def _add_member(call: Call, channel: Channel, user: User, inviter: str) -> None:
    """Add a member, and post the join notice as Slack does."""
    channel.members.add(user.id)
    event: Json = {
        "type": "member_joined_channel",
        "user": user.id,
        "channel": channel.id,
        "channel_type": "C",
        "team": call.workspace.team_id,
    }
    call.context.announcer.channel_event(channel, {**event, "inviter": inviter} if inviter else event)
    _post_notice(call, channel, "channel_join", "has joined the channel", by=user, inviter=inviter)


def _readable_channel(call: Call) -> Channel:
    channel = call.channel()
    if call.actor.id == call.workspace.bot.id and call.actor.id not in channel.members:
        raise MethodError("not_in_channel")
    return channel


def _range(call: Call, known: list[str]) -> tuple[int, int]:
    """Which of the sorted ts are between ``oldest`` and ``latest`` (bounds excluded unless ``inclusive``)."""
    oldest, latest = call.params.text("oldest"), call.params.text("latest")
    inclusive = call.params.flag("inclusive")
    low, high = 0, len(known)
    if oldest and oldest != "0":
        low = (bisect_left if inclusive else bisect_right)(known, normalize_ts(oldest))
    if latest and latest != "now":
        high = (bisect_right if inclusive else bisect_left)(known, normalize_ts(latest))
    return low, max(low, high)


def _message_page(call: Call, channel: Channel, shown: list[str], cursor: str) -> Json:
    metadata = call.params.flag("include_all_metadata")
    answer: Json = {
        "messages": [
            render.message(call.workspace, channel, channel.messages[ts], metadata=metadata) for ts in shown
        ],
        "has_more": bool(cursor),
    }
    if cursor:
        answer["response_metadata"] = {"next_cursor": cursor}
    return answer


def rename(call: Call) -> Json:
    """Slack lets an app rename only what it created."""
    channel = _open_channel(call)
    if call.actor.is_bot and channel.creator != call.actor.id:
        raise MethodError("not_authorized")
    name, old = call.params.text("name"), channel.name
    if name != old:
        call.workspace.check_name(name)
        channel.name = name
        _post_notice(call, channel, "channel_name", f'has renamed the channel from "{old}" to "{name}"')
        renamed = {
            "id": channel.id,
            "name": name,
            "name_normalized": name,
            "created": channel.created_s,
            "is_channel": True,
            "is_mpim": False,
        }
        call.context.announcer.channel_event(channel, {"type": "channel_rename", "channel": renamed})
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
    _post_notice(call, channel, "channel_archive", "archived the channel")
    return _set_archived(call, channel, "channel_archive", archived=True)


def unarchive(call: Call) -> Json:
    """conversations.unarchive; members are still members. Raises MethodError not_archived."""
    channel = call.channel()
    if not channel.is_archived:
        raise MethodError("not_archived")
    _post_notice(call, channel, "channel_unarchive", "un-archived the channel")
    return _set_archived(call, channel, "channel_unarchive", archived=False)


def _set_archived(call: Call, channel: Channel, event: str, *, archived: bool) -> Json:
    channel.is_archived = archived
    archive_event = {"type": event, "channel": channel.id, "user": call.actor.id}
    call.context.announcer.channel_event(channel, archive_event)
    return {}


def leave(call: Call) -> Json:
    """conversations.leave; for a non-member it is a warning, not an error."""
    channel = _open_channel(call)
    if call.actor.id not in channel.members:
        return {"not_in_channel": True}
    _remove_member(call, channel, call.actor)
    return {}


def kick(call: Call) -> Json:
    """conversations.kick: removes another member.

    Raises MethodError cant_kick_self, not_in_channel, user_not_found.
    """
    channel = _open_channel(call)
    user = call.workspace.user(call.params.required("user", "user_not_found"))
    if user.id == call.actor.id:
        raise MethodError("cant_kick_self")
    if user.id not in channel.members:
        raise MethodError("not_in_channel")
    _remove_member(call, channel, user)
    return {}


def set_topic(call: Call) -> Json:
    """conversations.setTopic, with a notice in the channel. Raises MethodError too_long."""
    channel = _open_channel(call)
    channel.topic = _topic_text(call, "topic")
    _post_notice(call, channel, "channel_topic", f"set the channel topic: {channel.topic}")
    return {"channel": render.conversation(channel, call.actor)}


def set_purpose(call: Call) -> Json:
    """conversations.setPurpose, with a notice in the channel. Raises MethodError too_long."""
    channel = _open_channel(call)
    channel.purpose = _topic_text(call, "purpose")
    _post_notice(call, channel, "channel_purpose", f"set the channel description: {channel.purpose}")
    return {"channel": render.conversation(channel, call.actor)}


def close(call: Call) -> Json:
    """Hides a direct conversation; its messages stay."""
    if not call.channel().is_im:
        raise MethodError("method_not_supported_for_channel_type")
    return {}


def mark(call: Call) -> Json:
    """Only the reader's own pages get an event, as with Slack's clients."""
    channel = call.channel()
    ts = normalize_ts(call.params.required("ts", "invalid_timestamp"))
    channel.read[call.actor.id] = ts
    call.context.announcer.read_marked(channel, call.actor, ts)
    return {}


def _open_channel(call: Call) -> Channel:
    channel = call.channel()
    if channel.is_im:
        raise MethodError("method_not_supported_for_channel_type")
    if channel.is_archived:
        raise MethodError("is_archived")
    return channel


def _topic_text(call: Call, name: str) -> str:
    text = call.params.text(name)
    if len(text) > MAX_TOPIC_CHARS:
        raise MethodError("too_long")
    return text


def _remove_member(call: Call, channel: Channel, user: User) -> None:
    """Remove a member. The app itself gets ``channel_left`` and no other event about it.

    Source: Slack's staff and users in its SDKs' issues (bolt-js 1847, node-slack-sdk 931).
    """
    if user.id == call.workspace.bot.id:
        channel.members.discard(user.id)
        left_event = {"type": "channel_left", "channel": channel.id, "actor_id": call.actor.id}
        call.context.announcer.channel_event(channel, left_event, to_nonmember=True)
        return
    event = {
        "type": "member_left_channel",
        "user": user.id,
        "channel": channel.id,
        "channel_type": "C",
        "team": call.workspace.team_id,
    }
    channel.members.discard(user.id)
    _post_notice(call, channel, "channel_leave", "has left the channel", by=user)
    call.context.announcer.channel_event(channel, event)


def _post_notice(
    call: Call, channel: Channel, subtype: str, text: str, by: User | None = None, inviter: str = ""
) -> None:
    """A notice in the channel about a change of it, in Slack's wording."""
    user, ts = by or call.actor, call.workspace.next_ts()
    message = Message(ts=ts, user=user.id, text=f"<@{user.id}> {text}", subtype=subtype, inviter=inviter)
    channel.add(message)
    call.context.announcer.message_posted(channel, message)
