"""The outermost layer: only this machine's own names get in, and a way to cut a connection."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
TRANSPORT = "codebutler.transport"


class LoopbackGuard:
    """Refuses a foreign Host (DNS rebinding) and a foreign Origin (another site's page in the browser).

    Loopback is not authentication: tokens are checked behind this. The connection's transport is put into
    the scope, so that a fault can drop it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        if not _is_local(HTTPConnection(scope)):
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


def _is_local(connection: HTTPConnection) -> bool:
    host = connection.headers.get("host", "")
    if _name(f"//{host}") not in LOCAL_NAMES:
        return False
    origin = connection.headers.get("origin")
    return origin is None or origin == f"http://{host}"


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
