"""An HTTP server as a part of a program: in its event loop, on a socket that is open before it starts."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

from codebutler.errors import CodeButlerError


def listen(host: str, port: int, *, or_next: int = 0) -> socket.socket:
    """A listening socket; port 0 = any free one. Is it in use, one of the ``or_next`` after it.

    Raises CodeButlerError when none can be had.
    """
    for candidate in range(port, port + or_next + 1):
        try:
            return _listen(host, candidate)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise CodeButlerError(f"cannot listen on {host}:{candidate}: {error.strerror}") from None
    raise CodeButlerError(f"port {port} is in use: choose another with --port")


@contextlib.asynccontextmanager
async def serving(app: Any, listener: socket.socket) -> AsyncIterator[None]:
    """Serve an ASGI application on ``listener`` while the context lives; it has a second to finish its answers."""
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",
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


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class _Server(uvicorn.Server):
    """Signals stay the program's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
