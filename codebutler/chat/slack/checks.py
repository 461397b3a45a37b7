"""The Slack checks of `codebutler doctor`: tokens, scopes, the clock, and the repositories' channels."""

from __future__ import annotations

from collections.abc import AsyncIterator

from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.app import BOT_SCOPES, NAMES_SCOPE, TokenFacts, inspect_token
from codebutler.config.chats import SlackSection, section_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError
from codebutler.domain.refs import ConversationRef
from codebutler.intake.repos import RepoTable
from codebutler.protocol.messages import Finding, fail, ok, warn

# Slack's timestamps are compared with our clock only to find late messages; a minute does not matter.
SKEW_S = 60.0
RENEW = "create the app again from `codebutler manifest --link`, or add them under OAuth & Permissions and reinstall"


async def check_slack(slack: SlackSection, table: RepoTable, clock: Clock) -> AsyncIterator[Finding]:
    """All Slack checks; stops after a refused token."""
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
            if section_of(served.channel_id) is not SlackSection:
                continue
            yield await _channel(api, served.entry.name, served.channel_id)
            if served.unheard:
                yield warn("channels", served.entry.name, served.unheard)


def scopes_finding(facts: TokenFacts) -> Finding:
    """Are all scopes of the manifest granted?"""
    if facts.scopes is None:
        return warn("slack", "scopes", "Slack does not report which are granted")
    missing = sorted(set(BOT_SCOPES) - facts.scopes)
    if missing == [NAMES_SCOPE]:
        return warn("slack", "scopes", f"missing {NAMES_SCOPE}, so people are shown by their IDs: {RENEW}")
    if missing:
        return fail("slack", "scopes", f"missing {', '.join(missing)}: {RENEW}")
    return ok("slack", "scopes", f"all {len(BOT_SCOPES)} granted")


def clock_finding(ahead_s: float | None) -> Finding:
    """Is this machine's clock right?"""
    if ahead_s is None:
        return ok("slack", "clock", "Slack's answer has no date to compare with")
    if abs(ahead_s) < SKEW_S:
        return ok("slack", "clock", f"within {max(1.0, abs(ahead_s)):.0f} s of Slack's")
    way = "ahead of" if ahead_s > 0 else "behind"
    return warn(
        "slack",
        "clock",
        f"{abs(ahead_s):.0f} s {way} Slack's: messages may be marked late by mistake; turn on time "
        "synchronisation (`timedatectl set-ntp true`)",
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


async def _channel(api: SlackApi, name: str, channel_id: ConversationRef) -> Finding:
    try:
        channel = await api.channel_info(channel_id)
    except ChatError as error:
        told = f"the app cannot see {channel_id} ({error.code}): invite it there, or run `codebutler add-repo` again"
        return fail(
            "channels", name, told if error.code in ("channel_not_found", "missing_scope") else str(error)
        )
    if channel.is_archived:
        return fail(
            "channels", name, f"#{channel.name} is archived: unarchive it, or run `codebutler add-repo` again"
        )
    if not channel.is_member:
        return fail("channels", name, f"the app is not in #{channel.name}: write `/invite @CodeButler` there")
    return ok("channels", name, f"#{channel.name} ({channel_id})")
