"""An HTTP server inside a program, and limits for its clients: how much, how long, how many. It is imported when
somebody connects, since it takes time and memory to load.

Anybody who reaches the port may open connections, including an agent with an open network, and each takes a descriptor
of the process that holds the connections to the chats.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 100
IDLE_S = 20.0
"""A connection is closed after this long without a complete request, or after the last answer."""


async def read_body(request: Request, most_bytes: int, within_s: float) -> bytes | Response:
    """The body; or the refusal to send if it is too large or does not arrive within ``within_s`` seconds."""
    body = bytearray()
    try:
        async with asyncio.timeout(within_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most_bytes:
                    return PlainTextResponse(f"the body is larger than {_size(most_bytes)}\n", 413)
    except (TimeoutError, ClientDisconnect):
        return PlainTextResponse("the body did not arrive in time\n", 408, {"Connection": "close"})
    return bytes(body)


def _size(count: int) -> str:
    return f"{count // 2**20} MiB" if count >= 2**20 else f"{count // 1024} KiB"


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, within these limits."""

    most = MAX_CONNECTIONS
    idle_s = IDLE_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """Drops a connection at once if there are too many."""
        super().connection_made(transport)
        self._check: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._check = self.loop.call_later(self.idle_s, self._drop_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended."""
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def _drop_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self._check = self.loop.call_later(self.idle_s, self._drop_if_idle)


@contextlib.asynccontextmanager
async def serving(
    app: Any, listener: socket.socket, protocol: type[asyncio.Protocol] | None = None
) -> AsyncIterator[None]:
    """Serve an ASGI application on ``listener`` while the context is open; at its end, responses have a second to
    finish. ``protocol`` replaces uvicorn's own for HTTP/1.1."""
    server = _Server(
        uvicorn.Config(
            app,
            http=protocol or "h11",
            ws="websockets-sansio",
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
        )
    )
    task = asyncio.create_task(server.serve(sockets=[listener]), name="web-server")
    try:
        yield
    finally:
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """uvicorn's server, but signals are left to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
