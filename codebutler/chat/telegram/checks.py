"""The Telegram checks of `codebutler doctor`: the token, other receivers, and the repositories' chats."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from codebutler.chat.telegram.api import BotApi
from codebutler.config.chats import TelegramSection, section_of
from codebutler.domain.errors import ChatError
from codebutler.intake.repos import RepoTable, Served
from codebutler.protocol.messages import Finding, fail, ok, warn


async def check_telegram(telegram: TelegramSection, table: RepoTable) -> AsyncIterator[Finding]:
    """All Telegram checks; stops after a refused token. Does not consume messages."""
    try:
        async with BotApi(telegram.bot_token, telegram.api_base_url) as api:
            me = await api.call("getMe")
            yield ok("telegram", "bot token", f"@{me.get('username')}")
            yield webhook_finding(await api.call("getWebhookInfo"))
            yield people_finding(telegram)
            for served in table.served:
                if section_of(served.channel_id) is TelegramSection:
                    yield await _chat(api, me, served)
    except ChatError as error:
        yield fail("telegram", "bot token", str(error))


def webhook_finding(info: Mapping[str, Any]) -> Finding:
    """Does another program receive the messages?"""
    if info.get("url"):
        told = "another program receives its messages through a webhook: `codebutler setup` can remove it"
        return fail("telegram", "messages", told)
    waiting = info.get("pending_update_count", 0)
    return ok("telegram", "messages", f"no webhook, {waiting} waiting to be fetched")


def people_finding(telegram: TelegramSection) -> Finding:
    """May anybody use it?"""
    if not telegram.allowed_users:
        return fail("telegram", "allowed users", "nobody may use it: run `codebutler setup`")
    return ok("telegram", "allowed users", f"{len(telegram.allowed_users)} in the global configuration")


def chat_finding(
    name: str, chat: Mapping[str, Any], me: Mapping[str, Any], member: Mapping[str, Any]
) -> Finding:
    """Does the bot read every message there, and may it create topics?"""
    title = str(chat.get("title") or chat.get("first_name") or chat.get("id"))
    if chat.get("type") == "private":
        return ok("channels", name, f"{title}, a private chat")
    is_admin = member.get("status") in ("administrator", "creator")
    if not is_admin and not me.get("can_read_all_group_messages"):
        told = "the bot reads only commands and replies there: make it an administrator of the group"
        return warn("channels", name, f"{title}: {told}")
    if chat.get("is_forum") and not member.get("can_manage_topics"):
        told = "the bot cannot create topics there: allow it to manage topics"
        return warn("channels", name, f"{title}: {told}")
    return ok("channels", name, f"{title} ({chat.get('id')})")


async def _chat(api: BotApi, me: Mapping[str, Any], served: Served) -> Finding:
    number = served.config.telegram.chat_id
    try:
        chat = await api.call("getChat", chat_id=number)
        member = await api.call("getChatMember", chat_id=number, user_id=me.get("id"))
    except ChatError as error:
        told = f"the bot cannot see the chat {number}: add it there, or run `codebutler add-repo` again ({error})"
        return fail("channels", served.entry.name, told)
    return chat_finding(served.entry.name, chat, me, member)
