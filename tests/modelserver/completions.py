"""The tests' own OpenAI-compatible service: chat completions on loopback, answering from a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.modelserver.chat import error_body, events, whole
from tests.modelserver.server import Reply

DONE = b"data: [DONE]\n\n"


@dataclass(slots=True)
class CompletionsServer:
    """Use as an async context manager. ``requests`` are the bodies seen (``raw`` as bytes), ``keys`` the credentials
    used. ``piece`` is how many characters of a tool call's arguments come in one chunk, ``chunk_bytes`` how the
    stream is cut on its way (0 = an event at a time); ``spell`` makes the events of a reply."""

    script: list[Reply] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    piece: int = 12
    chunk_bytes: int = 0
    spell: Callable[[Reply, int], Sequence[dict[str, Any]]] | None = None
    base_url: str = ""
    left: int = 0
    """How many clients went away in the middle of an answer."""
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._completions)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release.set()
        assert self._runner is not None
        await self._runner.cleanup()

    def play(self, *replies: Reply) -> None:
        """Append to the script."""
        self.script.extend(replies)

    async def seen(self, count: int, deadline_s: float = 30) -> None:
        """Wait until ``count`` requests have arrived."""
        await self._until(lambda: len(self.requests) >= count, deadline_s)

    async def abandoned(self, count: int = 1, deadline_s: float = 30) -> None:
        """Wait until ``count`` clients have gone away in the middle of an answer."""
        await self._until(lambda: self.left >= count, deadline_s)

    async def _until(self, holds: Callable[[], bool], deadline_s: float) -> None:
        async with asyncio.timeout(deadline_s), self._arrived:
            await self._arrived.wait_for(holds)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body: dict[str, Any] = json.loads(raw)
        reply = self.script.pop(0) if self.script else Reply("(the script is exhausted)")
        async with self._arrived:
            self.requests.append(body)
            self.raw.append(raw)
            self.keys.append(request.headers.get("authorization", "").removeprefix("Bearer "))
            self._arrived.notify_all()
        if reply.status != 200:
            return web.json_response(error_body(reply), status=reply.status, headers=dict(reply.headers))
        if not body.get("stream"):
            return web.json_response(whole(reply))
        return await self._stream(request, reply)

    async def _stream(self, request: web.Request, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        spell = self.spell or events
        try:
            for number, event in enumerate(spell(reply, self.piece)):
                await self._write(response, f"data: {json.dumps(event)}\n\n".encode())
                if reply.hold and number == 0:
                    await self.release.wait()
            await response.write(DONE)
            await response.write_eof()
        except (ConnectionResetError, asyncio.CancelledError):
            async with self._arrived:
                self.left += 1
                self._arrived.notify_all()
            raise
        return response

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        step = self.chunk_bytes or len(data)
        for at in range(0, len(data), step):
            await response.write(data[at : at + step])
