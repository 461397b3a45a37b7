"""The outermost layer: only this machine's own names get in, and a way to cut a connection."""

from __future__ import annotations

import asyncio

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from codebutler.platform.http import admits

HERE = "127.0.0.1"
TRANSPORT = "codebutler.transport"


class LoopbackGuard:
    """Refuses a foreign Host (DNS rebinding) and a foreign Origin (another site's page in the browser).

    Loopback is not authentication: tokens are checked behind this. The connection's transport is put into
    the scope, so that a fault can drop it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application: 403, or for a websocket 1008, in place of the inner one."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = HTTPConnection(scope).headers
        if not admits(headers.get("host", ""), headers.get("origin"), HERE):
            refusal = WebSocketClose(1008) if scope["type"] == "websocket" else _FORBIDDEN
            await refusal(scope, receive, send)
            return
        scope[TRANSPORT] = getattr(getattr(send, "__self__", None), "transport", None)
        await self._app(scope, receive, send)


_FORBIDDEN = PlainTextResponse("forbidden: open the address that was printed\n", 403)


def transport_of(connection: HTTPConnection) -> asyncio.Transport | None:
    """The connection's transport; None under a server that does not show it."""
    transport = connection.scope.get(TRANSPORT)
    return transport if isinstance(transport, asyncio.Transport) else None
