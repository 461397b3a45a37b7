"""A temporary connection while somebody sets the app up: who sends it a code, who presses a button.

Slack gives each event to just one of an app's connections. What is not for us is not acknowledged, so that Slack
sends it again, to whoever serves the app then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from codebutler.chat.fields import PayloadError
from codebutler.chat.port import Identity
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.payloads import parse_envelope
from codebutler.chat.slack.socket import SocketModeClient
from codebutler.chat.slack.wire import Envelope
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ChatError, CodeButlerError, ProtocolError
from codebutler.domain.message import Button, said
from codebutler.domain.model import ButtonClicked, MessagePosted, Post, Update
from codebutler.platform.tasks import cancel

HELLO_ACTION = "codebutler.hello"
HELLO_TEXT = "👋 CodeButler is connected. Press the button to finish the setup."
HEARD_TEXT = "✅ It works both ways. Setup is complete."
SKIPPED_TEXT = "👋 CodeButler is connected."
MAX_WRONG_CODES = 20
CONNECT_S = 15.0


class OthersConnectedError(CodeButlerError):
    """Another process is connected with this app's token: it would get a share of the events."""


class NotForUsError(Exception):
    """Left to whoever serves the app."""


class Meeting:
    """People and the app, while it is open. Make it with ``meet``."""

    def __init__(self, api: SlackApi, me: Identity) -> None:
        self._api = api
        self._me = me
        self._code = ""
        self._wrong = 0
        self._button_ts = ""
        self._came: asyncio.Queue[str] = asyncio.Queue()
        self._pressed = asyncio.Event()

    async def sender_of(self, code: str) -> str:
        """The ID of the next user who sends the app ``code`` in a direct message."""
        self._code = code
        return await self._came.get()

    async def say_hello(self, user: str) -> tuple[str, str]:
        """Send a user a message with a button; returns where it is."""
        channel = await self._api.open_direct(user)
        message = said(HELLO_TEXT, Button("It works", HELLO_ACTION, "hello", "primary"))
        self._button_ts = await self._api.post(channel, Post(message=message), "setup-hello")
        return channel, self._button_ts

    async def pressed(self) -> bool:
        """Wait until the button of ``say_hello`` is pressed."""
        return await self._pressed.wait()

    async def conclude(self, place: tuple[str, str], text: str) -> None:
        """Take the button away."""
        channel, ts = place
        await self._api.update(channel, Update(target_ts=ts, message=said(text)), "setup-hello")

    async def handle(self, envelope: Envelope) -> dict[str, Any] | None:
        """The socket's handler. Raises NotForUsError."""
        try:
            event = parse_envelope(envelope.type, envelope.payload, self._me)
        except (PayloadError, ProtocolError):
            raise NotForUsError from None
        match event:
            case MessagePosted(is_direct=True) if self._is_code(event.text):
                self._came.put_nowait(event.user)
            case ButtonClicked(message_ts=ts, action_id=action) if (action, ts) == (
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
    """Connect for as long as the block lasts.

    Raises OthersConnectedError where somebody else is connected as this app, ChatError where there is no connection.
    """
    meeting = Meeting(api, await api.identity())
    rng = Random()  # noqa: S311 - spreads attempts to connect
    client = SocketModeClient(lambda: api.open_connection(app_token), meeting.handle, SystemClock(), rng)
    quiet = logging.getLogger("codebutler.chat.slack")
    before = quiet.level
    quiet.setLevel(logging.CRITICAL + 1)  # what is left to others is no failure to tell of
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
