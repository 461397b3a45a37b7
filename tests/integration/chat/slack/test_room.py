"""The whole Slack side on the embedded workspace: every message heard, every answer given once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.payload import Ignored
from codebutler.chat.slack.api import SlackApi
from codebutler.chat.slack.link import SocketEnvelope, SocketTiming
from codebutler.chat.slack.payloads import Notice, parse_envelope, shown
from codebutler.chat.slack.socket import SocketModeClient
from codebutler.domain.clock import SystemClock
from codebutler.domain.message import Button, said
from codebutler.domain.model import ButtonClicked, Event, MessagePosted, Post, SlashCommand
from codebutler.workspace.api import Fault
from codebutler.workspace.server import Options, WorkspaceServer
from codebutler.workspace.socket import Timing
from tests.notes import Notes

DEADLINE_S = 30.0
QUICK = SocketTiming(backoff_base_s=0.02, backoff_cap_s=0.05, crowded_s=0.1, drain_s=2, close_timeout_s=0.2)
PATIENT = Timing().scaled(0.02)


class HurriedClock(SystemClock):
    """Waits a hundredth of the time, so that limits and back-offs are met but not sat out."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 100)

    def monotonic(self) -> float:
        return super().monotonic() * 100


class Parent:
    """Hears each event once, as the journal would, and answers messages in their thread."""

    def __init__(self, server: WorkspaceServer, api: SlackApi, sender: Sender) -> None:
        self.server = server
        self.api = api
        self.sender = sender
        self.heard: dict[str, Event] = {}
        self.answers: list[asyncio.Task[str]] = []
        self.channel = server.channel_id("general")
        self.client = SocketModeClient(self._open, self._handle, SystemClock(), Random(1), timing=QUICK)

    async def _open(self) -> str:
        return await self.api.open_connection(self.server.app_token)

    async def _handle(self, envelope: SocketEnvelope) -> dict[str, Any] | None:
        event = parse_envelope(envelope.type, envelope.payload, await self.me())
        if isinstance(event, Ignored | Notice) or event.key in self.heard:
            return None
        self.heard[event.key] = event
        self.server.signal.notify()
        if isinstance(event, MessagePosted):
            answer = Post(message=said(f"re: {event.text}"), thread=event.root)
            work = self.sender.submit(event.channel, f"op-{event.ref}", answer)
            self.answers.append(asyncio.create_task(work))
        return None

    async def me(self) -> Any:
        return self.server_me

    async def start(self) -> None:
        self.server_me = await self.api.identity()


@asynccontextmanager
async def parent() -> AsyncIterator[Parent]:
    async with (
        WorkspaceServer(Options(timing=PATIENT)) as server,
        SlackApi(server.bot_token, base_url=server.api_url) as api,
        Sender(api, HurriedClock(), Editor(str), Notes(), rng=Random(1)) as sender,
    ):
        made = Parent(server, api, sender)
        await made.start()
        run = asyncio.create_task(made.client.run())
        try:
            async with asyncio.timeout(DEADLINE_S):
                await made.client.wait_connected()
                yield made
        finally:
            await made.client.stop()
            await run
            await asyncio.gather(*made.answers)


async def test_nothing_is_lost_or_answered_twice_through_reconnects_and_faults() -> None:
    async with parent() as p:
        faults = (
            Fault(method="conversations.replies", kind="rate_limit", retry_after_s=1),
            Fault(method="chat.postMessage", kind="lost", times=3),
            Fault(method="chat.postMessage", kind="rate_limit", retry_after_s=2, times=2),
            Fault(method="chat.postMessage", kind="status", status=503, times=2),
            Fault(method="chat.postMessage", kind="reset", times=2),
        )
        said = []
        for number in range(60):
            if number % 12 == 3:
                p.server.hub.disconnect("refresh_requested")
            if number % 12 == 9:
                p.server.hub.connections.drop()
            if number % 10 == 5 and number // 10 < len(faults):
                p.server.faults.add(faults[number // 10])
            said.append(p.server.say("general", f"{number}"))
            await asyncio.sleep(0)
        await p.server.until(lambda: len(p.heard) == len(said) or None, timeout_s=DEADLINE_S)
        await asyncio.gather(*p.answers)
        assert p.server.faults.pending() == ()
        for number, ts in enumerate(said):
            texts = [message["text"] for message in p.server.thread("general", ts)]
            assert texts == [f"{number}", f"re: {number}"]


async def test_a_mention_is_heard_once() -> None:
    async with parent() as p:
        ts = p.server.say("general", f"<@{p.server_me.user_id}> hello")
        p.server.say("general", "after")
        await p.server.until(lambda: len(p.heard) == 2 or None)
        event = p.heard[f"message:{p.channel}:{ts}"]
        assert isinstance(event, MessagePosted)
        assert (event.text, event.mentioned) == ("hello", True)


async def test_what_was_said_while_nobody_listened_is_in_the_history() -> None:
    async with parent() as p:
        before = p.server.say("general", "before", None)
        await p.server.until(lambda: p.heard or None)
        await p.client.stop()
        missed = [p.server.say("general", f"missed {n}") for n in range(3)]
        page = await p.api.history(p.channel, since_s=float(before))
        events = [shown(message.raw, p.channel, p.server_me).event for message in reversed(page.messages)]
        posted = [event for event in events if isinstance(event, MessagePosted)]
        assert [event.ref for event in posted] == missed
        assert [event.text for event in posted] == [f"missed {n}" for n in range(3)]


async def test_clicks_and_slash_commands_are_heard() -> None:
    async with parent() as p:
        post = Post(message=said("working", Button("Stop", "codebutler.stop", "t1")))
        ts = await p.sender.submit(p.channel, "op", post)
        person = p.server.workspace.person
        action = {
            "channel": p.channel,
            "message_ts": ts,
            "action_id": "codebutler.stop",
            "block_id": "b",
            "value": "t1",
        }
        await p.server.interactions.click(person, action)
        await p.server.interactions.slash(
            person, {"channel": p.channel, "command": "/butler", "text": "status"}
        )
        click, slash = p.heard.values()
        assert isinstance(click, ButtonClicked)
        assert (click.user, click.message, click.action_id, click.value) == (
            person.id,
            ts,
            "codebutler.stop",
            "t1",
        )
        assert isinstance(slash, SlashCommand)
        assert (slash.user, slash.command, slash.text) == (person.id, "/butler", "status")


async def test_socket_mode_switched_off_is_told() -> None:
    async with parent() as p:
        p.server.hub.disconnect("link_disabled")
        async with asyncio.timeout(20):
            while p.client.status.state != "disabled":  # noqa: ASYNC110 - the server hears nothing of it
                await asyncio.sleep(0.01)
        assert "switched off" in p.client.status.trouble
