"""The Slack app that each user creates: its manifest, the link that creates it, what Slack says about its token, and
a temporary connection during setup. Slack: app manifests.

Every workspace has its own app, never a shared one: Slack throttles history for distributed apps, and each Socket
Mode client of an app takes events away from the others.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from codebutler.chat.payload import PayloadError
from codebutler.chat.port import Identity
from codebutler.chat.slack.answers import identity_in
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.http import ApiCall, SlackHttp
from codebutler.chat.slack.link import SocketEnvelope
from codebutler.chat.slack.payloads import parse_envelope
from codebutler.chat.slack.socket import SocketModeClient
from codebutler.domain.clock import Clock, SystemClock
from codebutler.domain.command_help import usage_hint
from codebutler.domain.commands import SLASH
from codebutler.domain.errors import ChatError, CodeButlerError, ProtocolError
from codebutler.domain.message import Button, said
from codebutler.domain.model import ButtonClicked, MessagePosted, Post, Update
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef, PersonRef
from codebutler.platform.tasks import cancel

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


TIMEOUT_S = 15.0


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


HELLO_ACTION = "codebutler.hello"
HELLO_TEXT = "👋 CodeButler is connected. Press the button to finish the setup."
HEARD_TEXT = "✅ Sending and receiving work. Setup is complete."
SKIPPED_TEXT = "👋 CodeButler is connected."
MAX_WRONG_CODES = 20
CONNECT_S = 15.0


class OthersConnectedError(CodeButlerError):
    """Another process is connected with this app's token: it would get some of the events."""


class NotForUsError(Exception):
    """The event is left to the process that serves the app."""


class Meeting:
    """People and the app, while the connection is open. Create it with ``meet``.

    Slack gives each event to only one of an app's connections. Events that are not for us are not acknowledged, so
    that Slack sends them again, to the supervisor that serves the app.
    """

    def __init__(self, api: SlackApi, me: Identity) -> None:
        self._api = api
        self._me = me
        self._code = ""
        self._wrong = 0
        self._button_ts = NOWHERE
        self._came: asyncio.Queue[PersonRef] = asyncio.Queue()
        self._pressed = asyncio.Event()

    async def sender_of(self, code: str) -> PersonRef:
        """The ID of the next user who sends ``code`` to the app in a direct message."""
        self._code = code
        return await self._came.get()

    async def say_hello(self, user: PersonRef) -> tuple[ConversationRef, MessageRef]:
        """Send a user a message with a button; returns its location."""
        channel = await self._api.open_direct(user)
        message = said(HELLO_TEXT, Button("It works", HELLO_ACTION, "hello", "primary"))
        self._button_ts = await self._api.post(channel, Post(message=message), "setup-hello")
        return channel, self._button_ts

    async def pressed(self) -> bool:
        """Wait until the button of ``say_hello`` is pressed."""
        return await self._pressed.wait()

    async def conclude(self, place: tuple[ConversationRef, MessageRef], text: str) -> None:
        """Remove the button."""
        channel, ts = place
        await self._api.update(channel, Update(target=ts, message=said(text)), "setup-hello")

    async def handle(self, envelope: SocketEnvelope) -> dict[str, Any] | None:
        """The socket's handler. Raises NotForUsError."""
        try:
            event = parse_envelope(envelope.type, envelope.payload, self._me)
        except (PayloadError, ProtocolError):
            raise NotForUsError from None
        match event:
            case MessagePosted(is_direct=True) if self._is_code(event.text):
                self._came.put_nowait(event.user)
            case ButtonClicked(message=ts, action_id=action) if (action, ts) == (
                HELLO_ACTION,
                self._button_ts,
            ):
                self._pressed.set()
            case _:
                raise NotForUsError
        return None

    def _is_code(self, text: str) -> bool:
        if not self._code or self._wrong >= MAX_WRONG_CODES:
            return False
        is_it = text.strip() == self._code
        self._wrong += not is_it
        return is_it


@asynccontextmanager
async def meet(api: SlackApi, app_token: str) -> AsyncIterator[Meeting]:
    """Stay connected for the duration of the block. Raises OthersConnectedError if another process is connected as
    this app, ChatError if connecting fails."""
    meeting = Meeting(api, await api.identity())
    rng = Random()  # noqa: S311 - spreads attempts to connect
    client = SocketModeClient(lambda: api.open_connection(app_token), meeting.handle, SystemClock(), rng)
    quiet = logging.getLogger("codebutler.chat.slack")
    before = quiet.level
    quiet.setLevel(logging.CRITICAL + 1)  # events left to the other process are not failures
    serving = asyncio.create_task(client.run(), name="setup-socket")
    try:
        try:
            async with asyncio.timeout(CONNECT_S):
                await client.wait_connected()
        except TimeoutError:
            raise ChatError(client.status.trouble or "no connection to Slack") from None
        if client.status.other_consumers:
            raise OthersConnectedError
        yield meeting
    finally:
        await client.stop()
        await cancel({serving})
        quiet.setLevel(before)
