"""A Socket Mode client on a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from codebutler.chat.slack.link import SocketEnvelope, SocketTiming
from codebutler.chat.slack.socket import SocketModeClient, SocketStatus
from codebutler.domain.clock import SystemClock
from tests.integration.chat.slack.server import DEADLINE_S, Peer, SocketServer

FAST = SocketTiming(
    ping_interval_s=0.2,
    ping_timeout_s=0.2,
    silence_s=0.6,
    open_timeout_s=2,
    hello_timeout_s=2,
    close_timeout_s=0.2,
    drain_s=5,
    stop_grace_s=2,
    backoff_base_s=0.02,
    backoff_cap_s=0.05,
    crowded_s=0.2,
    healthy_s=60,
)


class Bench:
    """A client on a scripted server, and what it took in."""

    def __init__(self, server: SocketServer, timing: SocketTiming = FAST) -> None:
        self.server = server
        self.seen: list[str] = []
        self.states: list[SocketStatus] = []
        self.reply: Callable[[SocketEnvelope], dict[str, Any] | None] = lambda _envelope: None
        self.gate = asyncio.Event()
        self.gate.set()
        self._news = asyncio.Event()
        self.client = SocketModeClient(
            server.open, self._handle, SystemClock(), Random(1), self._told, timing=timing
        )

    async def _handle(self, envelope: SocketEnvelope) -> dict[str, Any] | None:
        self.seen.append(envelope.envelope_id)
        self._news.set()
        await self.gate.wait()
        return self.reply(envelope)

    def _told(self, status: SocketStatus) -> None:
        self.states.append(status)
        self._news.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def state(self, name: str) -> None:
        await self.until(lambda: any(status.state == name for status in self.states))


@asynccontextmanager
async def running(timing: SocketTiming = FAST) -> AsyncIterator[tuple[Bench, asyncio.Task[None]]]:
    async with SocketServer() as server:
        bench = Bench(server, timing)
        run = asyncio.create_task(bench.client.run())
        try:
            yield bench, run
        finally:
            bench.gate.set()
            async with asyncio.timeout(DEADLINE_S):
                await bench.client.stop()
                await run


async def first(bench: Bench) -> Peer:
    peer = await bench.server.peer()
    await peer.hello()
    await bench.client.wait_connected()
    return peer
