"""The tests' own OpenAI-compatible service: chat completions on loopback, answering from a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.modelserver.chat import error_body, events, whole
from tests.modelserver.script import Reply, Scripted, bearer

DONE = b"data: [DONE]\n\n"


@dataclass
class CompletionsServer(Scripted):
    """``raw`` are the bodies seen, as bytes. ``piece`` is how many characters of a tool call's arguments come in one
    chunk, ``chunk_bytes`` how the stream is cut on its way (0 = an event at a time); ``spell`` makes the events of a
    reply."""

    raw: list[bytes] = field(default_factory=list)
    piece: int = 12
    chunk_bytes: int = 0
    spell: Callable[[Reply, int], Sequence[dict[str, Any]]] | None = None
    left: int = 0
    """How many clients went away in the middle of an answer."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/chat/completions", self._completions)
        return app

    @property
    def base_url(self) -> str:
        """What a client is told."""
        return f"{self.url}/v1"

    async def abandoned(self, count: int = 1, deadline_s: float = 30) -> None:
        """Wait until ``count`` clients have gone away in the middle of an answer."""
        await self.until(lambda: self.left >= count, deadline_s)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body: dict[str, Any] = json.loads(raw)
        self.raw.append(raw)
        reply = await self.next(body, bearer(request))
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
            self.left += 1
            await self.tell()
            raise
        return response

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        step = self.chunk_bytes or len(data)
        for at in range(0, len(data), step):
            await response.write(data[at : at + step])
