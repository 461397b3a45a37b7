"""The Slack app that each user creates: its manifest, the link that creates it; and for `codebutler doctor`, whether
all is right with it (tokens, scopes, clock, channels). Slack: app manifests.

Every workspace has its own app, never a shared one: Slack throttles history for distributed apps, and each Socket Mode
client of an app takes events away from the others.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from codebutler.chat.slack.answers import identity_in
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.http import ApiCall, SlackHttp
from codebutler.config.chats import SlackSection, section_of
from codebutler.domain.clock import Clock
from codebutler.domain.command_help import usage_hint
from codebutler.domain.commands import SLASH
from codebutler.domain.errors import ChatError
from codebutler.domain.refs import ConversationRef, PersonRef
from codebutler.intake.repos import RepoTable
from codebutler.protocol.messages import Finding, fail, ok, warn

CREATE_URL = "https://api.slack.com/apps"

# Only scopes that are used: a missing scope cannot be misused.
BOT_SCOPES = (
    "app_mentions:read",
    "channels:history",
    "channels:join",
    "channels:manage",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:write",
    "reactions:write",
    "users:read",
    "users:read.email",
)
NAMES_SCOPE = "users:read"
"""Without it, people are shown by their IDs; everything else works."""
BOT_EVENTS = (
    "app_home_opened",
    "app_mention",
    "channel_archive",
    "channel_left",
    "channel_unarchive",
    "group_archive",
    "group_left",
    "group_unarchive",
    "member_joined_channel",
    "message.channels",
    "message.groups",
    "message.im",
)
TIMEOUT_S = 15.0
# Slack's timestamps are compared with our clock only to find late messages; a minute does not matter.
SKEW_S = 60.0
RENEW = "create the app again from `codebutler manifest --link`, or add them under OAuth & Permissions and reinstall"


def manifest() -> dict[str, Any]:
    """The manifest, ready for JSON."""
    return {
        "_metadata": {"major_version": 1, "minor_version": 1},
        "display_information": {
            "name": "CodeButler",
            "description": "Reach the coding agents on your own machine",
            "background_color": "#1f2937",
        },
        "features": {
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": "CodeButler", "always_online": True},
            "slash_commands": [
                {
                    "command": SLASH,
                    "description": "Ask CodeButler about its work (in a thread, write !word instead)",
                    "usage_hint": usage_hint(),
                    "should_escape": False,
                }
            ],
        },
        "oauth_config": {"scopes": {"bot": list(BOT_SCOPES)}},
        "settings": {
            "event_subscriptions": {"bot_events": list(BOT_EVENTS)},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }


def creation_link() -> str:
    """Opens Slack's "create an app" page with everything filled in."""
    compact = json.dumps(manifest(), separators=(",", ":"))
    return f"{CREATE_URL}?{urlencode({'new_app': 1, 'manifest_json': compact})}"


class TokenFacts(Struct, frozen=True, kw_only=True):
    """What Slack says about a token. ``scopes`` is None if the server lists none. ``ahead_s``: how far our clock is
    ahead of Slack's (to about a second), None if unknown."""

    team: str
    user_id: PersonRef
    scopes: frozenset[str] | None
    ahead_s: float | None


async def inspect_token(token: str, base_url: str, clock: Clock) -> TokenFacts:
    """Ask Slack about a bot token. Raises ChatAuthError, ChatRateLimitedError, ChatUnreachableError."""
    heard: list[Mapping[str, str]] = []
    async with SlackHttp(token, base_url, TIMEOUT_S, heard.append) as http:
        me = identity_in(await http.call(ApiCall("auth.test")))
    scopes = heard[-1].get("x-oauth-scopes")
    return TokenFacts(
        team=me.team or me.team_id,
        user_id=me.user_id,
        scopes=None if scopes is None else frozenset(filter(None, map(str.strip, scopes.split(",")))),
        ahead_s=ahead_of(heard[-1].get("Date", ""), clock.now()),
    )


def ahead_of(date: str, now: datetime) -> float | None:
    """Seconds by which ``now`` is ahead of an HTTP date; None if it is not one. Assumes the middle of its second."""
    try:
        there = parsedate_to_datetime(date)
    except ValueError:
        return None
    return (now - there.astimezone(UTC)).total_seconds() - 0.5


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
