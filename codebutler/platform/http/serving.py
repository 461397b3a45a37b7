"""An HTTP server as a part of a program: in its event loop, on a socket that is open before it starts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn


@contextlib.asynccontextmanager
async def serving(
    app: Any, listener: socket.socket, protocol: type[asyncio.Protocol] | None = None
) -> AsyncIterator[None]:
    """Serve an ASGI application on ``listener`` while the context lives; it has a second to finish its answers.
    ``protocol``: in place of uvicorn's own for HTTP/1.1."""
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
    """Signals stay the program's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
