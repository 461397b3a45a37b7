"""The page over HTTP: its files are anybody's, what they show is for who has the key.

The key travels in a header, never in a cookie: cookies go to every port of this machine, and to whoever listens there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from codebutler.platform.http import admits
from codebutler.platform.http_server import read_body
from codebutler.web.dashboard.dashboard import Feed, LogFilter
from codebutler.web.dashboard.keys import Keys

MAX_BODY_BYTES = 4096
BODY_S = 10.0
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_NONCE = re.compile("[0-9a-f]{32}")
REFUSED = "This page has no key: run `codebutler dashboard` and open the link it prints."
USED = "This link was already used or has expired: run `codebutler dashboard` for a new one."
FULL = "Too many dashboards are open: close some of them."


class Guard:
    """The outermost layer: no other site's page, no foreign name; and what every answer says to the browser."""

    def __init__(self, app: ASGIApp, bound_to: str) -> None:
        self._app = app
        self._bound_to = bound_to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application: the inner one, or a refusal; with our headers on either."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message.get("headers", ()), *ours]
            await send(message)

        if scope["type"] != "http":
            await WebSocketClose(1008)(scope, receive, send)
            return
        headers = HTTPConnection(scope).headers
        if admits(headers.get("host", ""), headers.get("origin"), self._bound_to):
            await self._app(scope, receive, send_guarded)
        else:
            await _FORBIDDEN(scope, receive, send_guarded)


_FORBIDDEN = PlainTextResponse("forbidden: open the address that `codebutler dashboard` prints\n", 403)


@dataclass(frozen=True, slots=True)
class _Endpoints:
    """The endpoints."""

    feed: Feed
    keys: Keys
    static: Path

    async def index(self, _: Request) -> Response:
        """The page, for anybody: it shows nothing without the key."""
        return FileResponse(self.static / "index.html")

    async def key(self, request: Request) -> Response:
        """The key for a ticket."""
        body = await read_body(request, MAX_BODY_BYTES, BODY_S)
        if isinstance(body, Response):
            return body
        try:
            given: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            given = {}
        key = await self.keys.redeem(str(given.get("ticket", "")))
        return JSONResponse({"key": key, "port": _port(request)}) if key else _refusal(USED, 403)

    async def proof(self, request: Request) -> Response:
        """That it is us, to a page that has the key."""
        nonce = request.query_params.get("nonce", "")
        if not _NONCE.fullmatch(nonce):
            return _refusal("a nonce is 32 hexadecimal digits", 400)
        return JSONResponse({"proof": await self.keys.proof(_port(request), nonce)})

    async def stream(self, request: Request) -> Response:
        """Server-Sent Events for who has the key."""
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not await self.keys.admits(key.strip()):
            return _refusal(REFUSED, 401)
        if self.feed.is_full:
            return _refusal(FULL, 503)
        try:
            wish = msgspec.convert(dict(request.query_params), LogFilter)
        except msgspec.ValidationError as error:
            return _refusal(f"no such log: {error}", 400)
        return StreamingResponse(self.feed.follow(wish), media_type="text/event-stream")


def create_site(feed: Feed, keys: Keys, bound_to: str) -> ASGIApp:
    """Routes and guard."""
    static = Path(str(resources.files("codebutler.web.dashboard") / "static"))
    endpoints = _Endpoints(feed, keys, static)
    inner = Starlette(
        routes=[
            Route("/", endpoints.index),
            Mount("/static", StaticFiles(directory=static)),
            Route("/dashboard/key", endpoints.key, methods=["POST"]),
            Route("/dashboard/proof", endpoints.proof),
            Route("/dashboard/stream", endpoints.stream),
        ]
    )
    return Guard(inner, bound_to)


def _port(request: Request) -> int:
    """Where we listen, whatever the way here is called at the other end of a tunnel."""
    server: tuple[str, int] = request.scope["server"]
    return server[1]


def _refusal(text: str, status: int) -> Response:
    return JSONResponse({"error": text}, status)
