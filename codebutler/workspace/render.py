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


def message(workspace: Workspace, channel: Channel, stored: Message, *, metadata: bool = False) -> Json:
    """A message as in history and events; ``metadata`` only for readers that asked for it."""
    rendered: Json = {
        "type": "message",
        "user": stored.user,
        "text": stored.text,
        "ts": stored.ts,
        "team": workspace.team_id,
    }
    optional: Json = {
        "subtype": stored.subtype,
        "client_msg_id": stored.client_msg_id,
        "inviter": stored.inviter,
        "blocks": stored.blocks,
        "attachments": stored.attachments,
        "files": stored.files,
        "edited": stored.edited,
        "metadata": stored.metadata if metadata else None,
        "reactions": [
            {"name": name, "users": users, "count": len(users)} for name, users in stored.reactions.items()
        ],
    }
    rendered.update({key: value for key, value in optional.items() if value})
    if stored.files:
        rendered.update(upload=False, display_as_bot=False)
    if stored.stream is not None:
        rendered["streaming_state"] = "in_progress"
    if stored.username:
        # Slack: a message under another name has no user.
        rendered.update(subtype="bot_message", username=stored.username, icons=stored.icons)
        del rendered["user"]
    if stored.by_app:
        bot = workspace.users[stored.user]
        rendered.update(bot_id=bot.bot_id, app_id=bot.app_id, bot_profile=bot_profile(workspace, bot))
    rendered.update(_thread(channel, stored))
    return rendered


def _thread(channel: Channel, message: Message) -> Json:
    if message.is_reply and message.thread_ts is not None:
        return {"thread_ts": message.thread_ts, "parent_user_id": channel.messages[message.thread_ts].user}
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
    rendered: Json = {
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
        return {**rendered, "user": others[0] if others else viewer.id}
    return {
        **rendered,
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
    rendered: Json = {
        "last_read": channel.read.get(viewer.id, "0000000000.000000"),
        "unread_count": len(news),
        "unread_count_display": len(news),
    }
    return {**rendered, "unread_since": news[-1]} if news else rendered


def person(stored: User) -> Json:
    """A user as the page shows them."""
    return {"id": stored.id, "name": stored.name, "is_bot": stored.is_bot}


def email(stored: User) -> str:
    """Somebody's e-mail address here: nothing is ever sent to it."""
    return f"{stored.name.lower().replace(' ', '.')}@workspace.example"


def user(workspace: Workspace, stored: User) -> Json:
    """A user as in users.*; the only time zone here is UTC, the only administrator "you"."""
    rendered: Json = {
        "id": stored.id,
        "team_id": workspace.team_id,
        "name": stored.name.lower(),
        "real_name": stored.name,
        "deleted": False,
        "is_bot": stored.is_bot,
        "is_app_user": False,
        "is_admin": stored.id == workspace.person.id,
        "is_owner": stored.id == workspace.person.id,
        "is_restricted": False,
        "is_ultra_restricted": False,
        "updated": 0,
        "tz": "Etc/UTC",
        "tz_label": "Coordinated Universal Time",
        "tz_offset": 0,
        "profile": {"real_name": stored.name, "display_name": stored.name},
    }
    if stored.is_bot:
        rendered["profile"].update(bot_id=stored.bot_id, api_app_id=stored.app_id)
    else:
        rendered["profile"]["email"] = email(stored)
    return rendered


def views(workspace: Workspace, known: Views, user_id: str) -> Json:
    """Somebody's open modals, the visible one last, and their home."""
    home = known.home(user_id)
    return {
        "modals": [view(workspace, modal) for modal in known.stack(user_id)],
        "home": view(workspace, home) if home else None,
    }


def view(workspace: Workspace, stored: View) -> Json:
    """A modal or home as in views.* and interaction payloads."""
    content = stored.content
    rendered: Json = {
        "id": stored.id,
        "team_id": workspace.team_id,
        "type": content["type"],
        "blocks": stored.blocks,
        "private_metadata": content.get("private_metadata") or "",
        "callback_id": content.get("callback_id") or "",
        "external_id": content.get("external_id") or "",
        "state": {"values": stored.values},
        "hash": stored.hash,
        "title": content.get("title"),
        "clear_on_close": bool(content.get("clear_on_close")),
        "notify_on_close": bool(content.get("notify_on_close")),
        "close": content.get("close"),
        "submit": content.get("submit"),
        "previous_view_id": stored.previous_id,
        "root_view_id": stored.root_id,
        "app_id": workspace.app_id,
        "app_installed_team_id": workspace.team_id,
        "bot_id": workspace.bot.bot_id,
    }
    return rendered


def file(stored: StoredFile) -> Json:
    """A file as in messages and files.*; sizes are in bytes, times in seconds since the epoch."""
    kind, _, subkind = stored.mimetype.partition("/")
    rendered: Json = {
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
        rendered.update(subtype="slack_audio", media_display_type="audio", duration_ms=1000)
    return rendered
