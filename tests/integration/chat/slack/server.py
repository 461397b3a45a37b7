"""A Socket Mode endpoint under the test's control: every connection and every frame is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve

DEADLINE_S = 10.0


class Peer:
    """The server's end of one connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self.connection = connection
        self.acks: list[dict[str, Any]] = []
        self._news = asyncio.Event()

    async def send(self, frame: object) -> None:
        await self.connection.send(frame if isinstance(frame, str) else json.dumps(frame))

    async def hello(self, connections: int = 1) -> None:
        await self.send({"type": "hello", "num_connections": connections})

    async def event(self, envelope_id: str, *, answerable: bool = False, **payload: Any) -> None:
        await self.send(
            {
                "envelope_id": envelope_id,
                "type": "events_api",
                "accepts_response_payload": answerable,
                "payload": payload,
            }
        )

    async def disconnect(self, reason: str) -> None:
        await self.send({"type": "disconnect", "reason": reason})

    async def acked(self, *envelope_ids: str) -> None:
        """Wait until all of these were acknowledged on this connection."""
        async with asyncio.timeout(DEADLINE_S):
            while not set(envelope_ids) <= {ack["envelope_id"] for ack in self.acks}:
                self._news.clear()
                await self._news.wait()

    async def gone(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.connection.wait_closed()

    async def collect(self) -> None:
        async for message in self.connection:
            self.acks.append(json.loads(message))
            self._news.set()


class SocketServer:
    """Hands out tickets (``open``) and connections (``peer``); ``on_open`` may refuse a ticket."""

    def __init__(self) -> None:
        self.tickets = 0
        self.on_open: Callable[[int], None] = lambda _ticket: None
        self._peers: asyncio.Queue[Peer] = asyncio.Queue()
        self._server: Server | None = None

    async def __aenter__(self) -> SocketServer:
        self._server = await serve(self._serve, "127.0.0.1", 0, ping_interval=None, close_timeout=0.2)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        port = next(iter(self._server.sockets)).getsockname()[1]
        return f"ws://127.0.0.1:{port}/link/?ticket=secret-{self.tickets}"

    async def open(self) -> str:
        self.tickets += 1
        self.on_open(self.tickets)
        return self.url

    async def peer(self) -> Peer:
        """The next connection."""
        async with asyncio.timeout(DEADLINE_S):
            return await self._peers.get()

    async def _serve(self, connection: ServerConnection) -> None:
        peer = Peer(connection)
        self._peers.put_nowait(peer)
        await peer.collect()
