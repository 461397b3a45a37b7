"""The workspace's records as Slack's JSON. Pure."""

from __future__ import annotations

from codebutler.workspace.state import Channel, Json, Message, StoredFile, User, Workspace
from codebutler.workspace.views import View, Views


def bot_profile(workspace: Workspace, bot: User) -> Json:
    """The ``bot_profile`` of messages, which bots.info answers with, too."""
    return {
        "id": bot.bot_id,
        "app_id": bot.app_id,
        "user_id": bot.id,
        "name": bot.name,
        "team_id": workspace.team_id,
        "deleted": False,
        "updated": 0,
        "icons": {},
    }


def message(workspace: Workspace, channel: Channel, told_of: Message, *, metadata: bool = False) -> Json:
    """A message as in history and events; ``metadata`` only for readers that asked for it."""
    told: Json = {
        "type": "message",
        "user": told_of.user,
        "text": told_of.text,
        "ts": told_of.ts,
        "team": workspace.team_id,
    }
    optional: Json = {
        "subtype": told_of.subtype,
        "client_msg_id": told_of.client_msg_id,
        "inviter": told_of.inviter,
        "blocks": told_of.blocks,
        "attachments": told_of.attachments,
        "files": told_of.files,
        "edited": told_of.edited,
        "metadata": told_of.metadata if metadata else None,
        "reactions": [
            {"name": name, "users": users, "count": len(users)} for name, users in told_of.reactions.items()
        ],
    }
    told.update({key: value for key, value in optional.items() if value})
    if told_of.files:
        told.update(upload=False, display_as_bot=False)
    if told_of.stream is not None:
        told["streaming_state"] = "in_progress"
    if told_of.username:
        # Slack: a message under another name has no user.
        told.update(subtype="bot_message", username=told_of.username, icons=told_of.icons)
        del told["user"]
    if told_of.by_app:
        bot = workspace.users[told_of.user]
        told.update(bot_id=bot.bot_id, app_id=bot.app_id, bot_profile=bot_profile(workspace, bot))
    told.update(_thread(channel, told_of))
    return told


def _thread(channel: Channel, message: Message) -> Json:
    if message.is_reply and message.thread_ts is not None:
        return {
            "thread_ts": message.thread_ts,
            "parent_user_id": channel.messages[message.thread_ts].user,
        }
    if not message.replies:
        return {}
    users = list(dict.fromkeys(channel.messages[ts].user for ts in message.replies))
    return {
        "thread_ts": message.ts,
        "reply_count": len(message.replies),
        "reply_users": users[:5],
        "reply_users_count": len(users),
        "latest_reply": message.replies[-1],
    }


def conversation(channel: Channel, viewer: User) -> Json:
    """A channel as conversations.* show it to ``viewer``; a direct conversation has no name but the other's
    ID."""
    told: Json = {
        "id": channel.id,
        "created": channel.created_s,
        "creator": channel.creator,
        "is_channel": not channel.is_hidden,
        "is_group": channel.is_private,
        "is_im": channel.is_im,
        "is_mpim": False,
        "is_private": channel.is_hidden,
        "is_archived": channel.is_archived,
    }
    if channel.is_im:
        others = sorted(channel.members - {viewer.id})
        return {**told, "user": others[0] if others else viewer.id}
    return {
        **told,
        "name": channel.name,
        "name_normalized": channel.name,
        "is_general": False,
        "is_member": viewer.id in channel.members,
        "topic": {"value": channel.topic, "creator": channel.creator, "last_set": 0},
        "purpose": {"value": channel.purpose, "creator": channel.creator, "last_set": 0},
        "num_members": len(channel.members),
    }


def unread(channel: Channel, viewer: User) -> Json:
    """How far somebody has read, and how many messages there are since; ``unread_since`` is the page's own."""
    news = channel.unread(viewer.id, viewer.here_since)
    told: Json = {
        "last_read": channel.read.get(viewer.id, "0000000000.000000"),
        "unread_count": len(news),
        "unread_count_display": len(news),
    }
    return {**told, "unread_since": news[-1]} if news else told


def person(told_of: User) -> Json:
    """A user as the page shows them."""
    return {"id": told_of.id, "name": told_of.name, "is_bot": told_of.is_bot}


def email(told_of: User) -> str:
    """Somebody's e-mail address here: nothing is ever sent to it."""
    return f"{told_of.name.lower().replace(' ', '.')}@workspace.example"


def user(workspace: Workspace, told_of: User) -> Json:
    """A user as in users.*; the only time zone here is UTC, the only administrator "you"."""
    told: Json = {
        "id": told_of.id,
        "team_id": workspace.team_id,
        "name": told_of.name.lower(),
        "real_name": told_of.name,
        "deleted": False,
        "is_bot": told_of.is_bot,
        "is_app_user": False,
        "is_admin": told_of.id == workspace.person.id,
        "is_owner": told_of.id == workspace.person.id,
        "is_restricted": False,
        "is_ultra_restricted": False,
        "updated": 0,
        "tz": "Etc/UTC",
        "tz_label": "Coordinated Universal Time",
        "tz_offset": 0,
        "profile": {"real_name": told_of.name, "display_name": told_of.name},
    }
    if told_of.is_bot:
        told["profile"].update(bot_id=told_of.bot_id, api_app_id=told_of.app_id)
    else:
        told["profile"]["email"] = email(told_of)
    return told


def views(workspace: Workspace, known: Views, user_id: str) -> Json:
    """Somebody's open modals, the visible one last, and their home."""
    home = known.home(user_id)
    return {
        "modals": [view(workspace, modal) for modal in known.stack(user_id)],
        "home": view(workspace, home) if home else None,
    }


def view(workspace: Workspace, told_of: View) -> Json:
    """A modal or home as in views.* and interaction payloads."""
    given = told_of.given
    told: Json = {
        "id": told_of.id,
        "team_id": workspace.team_id,
        "type": given["type"],
        "blocks": told_of.blocks,
        "private_metadata": given.get("private_metadata") or "",
        "callback_id": given.get("callback_id") or "",
        "external_id": given.get("external_id") or "",
        "state": {"values": told_of.values},
        "hash": told_of.hash,
        "title": given.get("title"),
        "clear_on_close": bool(given.get("clear_on_close")),
        "notify_on_close": bool(given.get("notify_on_close")),
        "close": given.get("close"),
        "submit": given.get("submit"),
        "previous_view_id": told_of.previous_id,
        "root_view_id": told_of.root_id,
        "app_id": workspace.app_id,
        "app_installed_team_id": workspace.team_id,
        "bot_id": workspace.bot.bot_id,
    }
    return told


def file(stored: StoredFile) -> Json:
    """A file as in messages and files.*; sizes are in bytes, times in seconds since the epoch."""
    kind, _, subkind = stored.mimetype.partition("/")
    told: Json = {
        "id": stored.id,
        "created": stored.created_s,
        "timestamp": stored.created_s,
        "name": stored.name,
        "title": stored.title,
        "mimetype": stored.mimetype,
        "filetype": "text" if kind == "text" else subkind,
        "user": stored.owner,
        "mode": "hosted",
        "size": stored.length_bytes,
        "is_external": False,
        "is_public": True,
        "url_private": stored.url,
        "url_private_download": stored.url,
    }
    # Slack marks what its apps record this way; the name is how a test or the page says "voice clip".
    if stored.name.startswith("audio_message"):
        told.update(subtype="slack_audio", media_display_type="audio", duration_ms=1000)
    return told
