"""A connection that lives and brings nothing, among a hundred channels: found by an event of our own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.link import SocketEnvelope, SocketTiming
from codebutler.chat.slack.presence import EXPLANATION, EchoProbe, Presence
from codebutler.chat.slack.socket import SocketModeClient
from codebutler.domain.errors import ChatError
from codebutler.domain.refs import ConversationRef
from codebutler.intake.journal import Journal
from codebutler.workspace.server import Options, WorkspaceServer
from tests.clock import ManualClock
from tests.notes import Notes

CHANNELS = tuple(f"c{number}" for number in range(100))
DEADLINE_S = 30.0
# The pings are the library's and follow the real time, of which next to none passes here.
UNHURRIED = SocketTiming(silence_s=1e6, close_timeout_s=0.2, open_timeout_s=1e6, hello_timeout_s=5)


class Post:
    """The Slack side of a supervisor that only listens, by a clock that the test moves."""

    def __init__(self, server: WorkspaceServer, api: SlackApi, clock: ManualClock) -> None:
        self.clock = clock
        self.server = server
        self.api = api
        self.heard: list[str] = []
        self.channels = [ConversationRef(server.channel_id(name)) for name in CHANNELS]
        self.client = SocketModeClient(self._open, self._handle, self.clock, Random(1), timing=UNHURRIED)

    async def _open(self) -> str:
        return await self.api.open_connection(self.server.app_token)

    async def _handle(self, envelope: SocketEnvelope) -> dict[str, Any] | None:
        self.heard.append(str(envelope.payload["event"].get("subtype") or envelope.payload["event"]["text"]))
        return None

    async def look(self, _channels: object) -> bool:
        raise ChatError("not asked here: it would take eight minutes to ask about a hundred channels")

    async def passes(self, seconds: float) -> None:
        """Time goes by; what goes over the wire in between is waited for."""
        for _ in range(int(seconds * 4)):
            await self.clock.advance(0.25)
            await asyncio.sleep(0.002)

    def echoes(self) -> list[dict[str, Any]]:
        """The lines that are there for the echo."""
        told = [
            self.server.call("conversations.history", self.server.bot_token, channel=c) for c in self.channels
        ]
        return [m for history in told for m in history["messages"] if m["text"].startswith(EXPLANATION)]


@asynccontextmanager
async def listening(tmp_path: Path) -> AsyncIterator[Post]:
    clock = ManualClock()
    async with (
        WorkspaceServer(Options(channels=CHANNELS, with_limits=True)) as server,
        SlackApi(server.bot_token, server.api_url) as api,
        Journal.open(tmp_path / "journal.db", clock) as journal,
        Sender(api, clock, Editor(str), Notes()) as sender,
    ):
        post = Post(server, api, clock)
        heartbeat = EchoProbe(sender, journal, lambda: post.channels, clock)
        presence = Presence(
            lambda: post.channels,
            lambda: post.client.status,
            post.client.rebuild,
            post.look,
            heartbeat.beat,
            clock,
        )
        tasks = [asyncio.create_task(post.client.run()), asyncio.create_task(presence.run())]
        try:
            await post.passes(1)
            await post.client.wait_connected()
            yield post
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_deaf_connection_among_a_hundred_channels_is_replaced_within_half_a_minute(
    tmp_path: Path,
) -> None:
    async with listening(tmp_path) as post:
        await post.passes(70)
        assert post.client.status.reconnects == 0
        assert len(post.echoes()) == 1, "one line, however often it is asked"
        assert post.heard.count("message_changed") >= 2
        post.server.hub.connections.deafen()
        deaf_s = post.clock.monotonic()
        async with asyncio.timeout(DEADLINE_S):
            while post.client.status.reconnects == 0:
                await post.passes(0.25)
        assert post.clock.monotonic() - deaf_s < 30
        post.server.say("c7", "are you there?")
        await post.passes(2)
        assert "are you there?" in post.heard
        await post.passes(60)
        assert post.client.status.reconnects == 1


async def test_a_line_that_somebody_deletes_is_written_once_more_and_no_more(tmp_path: Path) -> None:
    async with listening(tmp_path) as post:
        for expected in (1, 1, 0):
            await post.passes(40)
            lines = post.echoes()
            assert len(lines) == expected
            for line in lines:
                post.server.call(
                    "chat.delete", post.server.bot_token, channel=post.channels[0], ts=line["ts"]
                )
        assert post.client.status.reconnects == 0
