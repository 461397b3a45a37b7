"""What `codebutler doctor` asks the chats: tokens, scopes, the clock, and the channels of the repositories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.app import BOT_SCOPES, NAMES_SCOPE, TokenFacts, inspect_token
from codebutler.chat.telegram.api import BotApi
from codebutler.config.channels import chat_of
from codebutler.config.schema import SlackSection, TelegramSection
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError
from codebutler.intake.repos import RepoTable, Served
from codebutler.protocol.messages import Finding, fail, ok, warn

# Slack's timestamps and ours are compared for what is late; a minute more or less does not matter there.
SKEW_S = 60.0
RENEW = "create the app anew from `codebutler manifest --link`, or add them under OAuth & Permissions and reinstall"


async def check_slack(slack: SlackSection, table: RepoTable, clock: Clock) -> AsyncIterator[Finding]:
    """Everything that needs Slack; after a refused token nothing more is asked."""
    try:
        facts = await inspect_token(slack.bot_token, slack.api_base_url, clock)
    except ChatError as error:
        yield fail("slack", "bot token", str(error))
        return
    yield ok("slack", "bot token", f"{facts.team} as {facts.user_id}")
    async with SlackApi(slack.bot_token, slack.api_base_url) as api:
        yield await _app_token(api, slack.app_token)
        yield scopes_finding(facts)
        yield clock_finding(facts.ahead_s)
        yield _people(slack)
        for served in table.served:
            if chat_of(served.channel_id) != "Slack":
                continue
            yield await _channel(api, served.entry.name, served.channel_id)
            if served.unheard:
                yield warn("channels", served.entry.name, served.unheard)


def scopes_finding(facts: TokenFacts) -> Finding:
    """Are all the scopes granted that the manifest asks for?"""
    if facts.scopes is None:
        return warn("slack", "scopes", "Slack does not tell which are granted")
    missing = sorted(set(BOT_SCOPES) - facts.scopes)
    if missing == [NAMES_SCOPE]:
        return warn("slack", "scopes", f"missing {NAMES_SCOPE}, so people are shown by their IDs: {RENEW}")
    if missing:
        return fail("slack", "scopes", f"missing {', '.join(missing)}: {RENEW}")
    return ok("slack", "scopes", f"all {len(BOT_SCOPES)} granted")


def clock_finding(ahead_s: float | None) -> Finding:
    """Does this machine know what time it is?"""
    if ahead_s is None:
        return ok("slack", "clock", "Slack's answer carries no date to compare with")
    if abs(ahead_s) < SKEW_S:
        return ok("slack", "clock", f"within {max(1.0, abs(ahead_s)):.0f} s of Slack's")
    way = "ahead of" if ahead_s > 0 else "behind"
    return warn(
        "slack",
        "clock",
        f"{abs(ahead_s):.0f} s {way} Slack's: messages may be called late that are not; switch time "
        "synchronisation on (`timedatectl set-ntp true`)",
    )


async def _app_token(api: SlackApi, token: str) -> Finding:
    try:
        await api.open_connection(token)
    except ChatError as error:
        return fail("slack", "app token", str(error))
    return ok("slack", "app token", "Socket Mode connections are granted")


def _people(slack: SlackSection) -> Finding:
    if not slack.allowed_users:
        advice = "nobody may use it: run `codebutler setup --allow-user U…` with your Slack user ID"
        return fail("slack", "allowed users", advice)
    return ok("slack", "allowed users", f"{len(slack.allowed_users)} in the global configuration")


async def _channel(api: SlackApi, name: str, channel_id: str) -> Finding:
    try:
        channel = await api.channel_info(channel_id)
    except ChatError as error:
        told = f"{channel_id} cannot be seen ({error.code}): invite the app there, or `codebutler add-repo` again"
        return fail(
            "channels", name, told if error.code in ("channel_not_found", "missing_scope") else str(error)
        )
    if channel.is_archived:
        return fail(
            "channels", name, f"#{channel.name} is archived: unarchive it, or `codebutler add-repo` again"
        )
    if not channel.is_member:
        return fail("channels", name, f"the app is not in #{channel.name}: write `/invite @CodeButler` there")
    return ok("channels", name, f"#{channel.name} ({channel_id})")


async def check_telegram(telegram: TelegramSection, table: RepoTable) -> AsyncIterator[Finding]:
    """Everything that needs Telegram; after a refused token nothing more is asked. Takes no message away."""
    try:
        async with BotApi(telegram.bot_token, telegram.api_base_url) as api:
            me = await api.call("getMe")
            yield ok("telegram", "bot token", f"@{me.get('username')}")
            yield webhook_finding(await api.call("getWebhookInfo"))
            yield people_finding(telegram)
            for served in table.served:
                if chat_of(served.channel_id) == "Telegram":
                    yield await _chat(api, me, served)
    except ChatError as error:
        yield fail("telegram", "bot token", str(error))


def webhook_finding(info: Mapping[str, Any]) -> Finding:
    """Does anything else take the messages?"""
    if info.get("url"):
        told = "another program receives its messages by a webhook: `codebutler setup` can remove it"
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
    """Does the bot read everything that is written there, and may it make topics?"""
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
        told = (
            f"the chat {number} cannot be seen: add the bot to it, or `codebutler add-repo` again ({error})"
        )
        return fail("channels", served.entry.name, told)
    return chat_finding(served.entry.name, chat, me, member)
