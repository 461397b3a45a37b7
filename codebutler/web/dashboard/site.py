"""The pages over HTTP: anybody may load the files, but the data needs the key. The key travels in a header, never in
a cookie: browsers send cookies to every port of this machine, whichever program listens there."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import msgspec
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from codebutler.domain.errors import CodeButlerError
from codebutler.platform.http import admits
from codebutler.platform.http_server import read_body
from codebutler.web.dashboard.actions import Action, Keys
from codebutler.web.dashboard.changes import Comments
from codebutler.web.dashboard.dashboard import Feed, LogFilter, Pages
from codebutler.web.dashboard.ledger import LedgerFilter

MAX_BODY_BYTES = 4096
MAX_COMMENTS_BYTES = 2**18
MAX_ACT_BYTES = 2**16
MAX_NAME_CHARS = 100
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
Endpoint = Callable[[Request], Awaitable[Response]]
NO_KEY = "This page has no key: run `codebutler dashboard` and open the link it prints."
LINK_USED = "This link was already used or has expired: run `codebutler dashboard` for a new one."
TOO_MANY_VIEWERS = "Too many dashboards are open: close some of them."


_PAGES = {
    "index": ("CodeButler dashboard", ("page", "lists", "decisions"), "main"),
    "changes": ("Changes · CodeButler", ("page", "changes"), "changes"),
    "thread": ("Thread · CodeButler", ("page", "lists", "decisions", "thread"), "thread"),
    "costs": ("Costs · CodeButler", ("page", "lists", "costs"), "costs"),
}
"""The title, style sheets and script of each page; its body is the file of its name."""
_FORBIDDEN = PlainTextResponse("forbidden: open the address that `codebutler dashboard` prints\n", 403)


class Guard:
    """The outermost layer: rejects foreign origins and host names, and adds our headers to every response."""

    def __init__(self, app: ASGIApp, bound_to: str) -> None:
        self._app = app
        self._bound_to = bound_to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application: the inner one or a refusal, with our headers on either."""

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


class _Endpoints(Struct, frozen=True):
    """The endpoints; ``require_key`` ones need the key."""

    feed: Feed
    pages: Pages
    keys: Keys
    static: Path

    def page(self, name: str) -> Endpoint:
        """A page, for anybody: without the key it shows nothing."""
        html = _page(self.static, name)

        async def served(_: Request) -> Response:
            return HTMLResponse(html)

        return served

    async def ledger_html(self, request: Request) -> Response:
        """The contents of the page of costs."""
        params = {name: value[:MAX_NAME_CHARS] for name, value in request.query_params.items()}
        try:
            filters = msgspec.convert(params, LedgerFilter, strict=False)
        except msgspec.ValidationError as error:
            return _error_response(f"unknown filters: {error}", 400)
        return HTMLResponse(await self.pages.ledger.html(filters))

    async def key(self, request: Request) -> Response:
        """The key for a ticket."""
        body = await read_body(request, MAX_BODY_BYTES, BODY_S)
        if isinstance(body, Response):
            return body
        try:
            data: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            data = {}
        key = await self.keys.redeem(str(data.get("ticket", "")))
        return JSONResponse({"key": key, "port": _port(request)}) if key else _error_response(LINK_USED, 403)

    async def proof(self, request: Request) -> Response:
        """Proves to a page that has the key that it is talking to us."""
        nonce = request.query_params.get("nonce", "")
        if not _NONCE.fullmatch(nonce):
            return _error_response("a nonce is 32 hexadecimal digits", 400)
        return JSONResponse({"proof": await self.keys.proof(_port(request), nonce)})

    async def stream(self, request: Request) -> Response:
        """Server-Sent Events."""
        if self.feed.is_full:
            return _error_response(TOO_MANY_VIEWERS, 503)
        try:
            log_filter = msgspec.convert(dict(request.query_params), LogFilter)
        except msgspec.ValidationError as error:
            return _error_response(f"no such log: {error}", 400)
        return StreamingResponse(self.feed.follow(log_filter), media_type="text/event-stream")

    async def diff(self, request: Request) -> Response:
        """What a run changed."""
        return _json_response(
            await self.pages.reviews.view(_query_param(request, "repo"), _query_param(request, "run"))
        )

    async def thread(self, request: Request) -> Response:
        """A conversation."""
        return _json_response(
            await self.pages.conversations.thread(_query_param(request, "repo"), _query_param(request, "run"))
        )

    async def search(self, request: Request) -> Response:
        """Conversations with some words."""
        return _json_response(
            await self.pages.conversations.find(_query_param(request, "words"), _query_param(request, "repo"))
        )

    async def comments(self, request: Request) -> Response:
        """Post the comments in the run's thread."""
        review = await _read_body_as(request, Comments, MAX_COMMENTS_BYTES)
        if isinstance(review, Response):
            return review
        await self.pages.reviews.send(review)
        return JSONResponse({"sent": len(review.comments)})

    async def action(self, request: Request) -> Response:
        """Do what a person has pressed."""
        action_requested = await _read_body_as(request, Action, MAX_ACT_BYTES)
        if isinstance(action_requested, Response):
            return action_requested
        return JSONResponse({"told": await self.pages.actions.perform(action_requested)})

    def require_key(self, endpoint: Endpoint, refused: int = 404) -> Endpoint:
        """The endpoint for those who have the key. Its CodeButlerError is answered with the status ``refused``."""

        async def served(request: Request) -> Response:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not await self.keys.admits(key.strip()):
                return _error_response(NO_KEY, 401)
            try:
                return await endpoint(request)
            except CodeButlerError as error:
                return _error_response(str(error), refused)

        return served


def create_site(feed: Feed, pages: Pages, keys: Keys, bound_to: str) -> ASGIApp:
    """The application: routes behind the guard."""
    static = Path(str(resources.files("codebutler.web.dashboard") / "static"))
    endpoints = _Endpoints(feed, pages, keys, static)
    app = Starlette(
        routes=[
            Route("/", endpoints.page("index")),
            Route("/changes/{repo}/{run}", endpoints.page("changes")),
            Route("/costs", endpoints.page("costs")),
            Route("/dashboard/costs", endpoints.require_key(endpoints.ledger_html)),
            Mount("/static", StaticFiles(directory=static)),
            Route("/dashboard/key", endpoints.key, methods=["POST"]),
            Route("/dashboard/proof", endpoints.proof),
            Route("/dashboard/stream", endpoints.require_key(endpoints.stream)),
            Route("/dashboard/changes", endpoints.require_key(endpoints.diff)),
            Route("/thread/{repo}/{run}", endpoints.page("thread")),
            Route("/dashboard/thread", endpoints.require_key(endpoints.thread)),
            Route("/dashboard/found", endpoints.require_key(endpoints.search)),
            Route("/dashboard/comments", endpoints.require_key(endpoints.comments, 409), methods=["POST"]),
            Route("/dashboard/act", endpoints.require_key(endpoints.action, 409), methods=["POST"]),
        ]
    )
    return Guard(app, bound_to)


def _page(static: Path, name: str) -> str:
    """The whole page: the common frame with this page's body."""
    title, sheets, script = _PAGES[name]
    body = Template((static / f"{name}.html").read_text(encoding="utf-8"))
    return Template((static / "frame.html").read_text(encoding="utf-8")).substitute(
        title=title,
        styles="\n".join(f'  <link rel="stylesheet" href="/static/{sheet}.css">' for sheet in sheets),
        script=script,
        body=body.substitute(sign_in=(static / "sign_in.html").read_text(encoding="utf-8")),
    )


def _json_response(view: object) -> Response:
    return Response(msgspec.json.encode(view), media_type="application/json")


def _query_param(request: Request, name: str) -> str:
    return request.query_params.get(name, "")[:MAX_NAME_CHARS]


def _port(request: Request) -> int:
    """Our own port, even if a tunnel shows the page at another address."""
    server: tuple[str, int] = request.scope["server"]
    return server[1]


async def _read_body_as(request: Request, kind: Any, limit: int) -> Any:
    """The request's body as an object of that kind, or a refusal."""
    body = await read_body(request, limit, BODY_S)
    if isinstance(body, Response):
        return body
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _error_response(f"unexpected request: {error}", 400)


def _error_response(text: str, status: int) -> Response:
    return JSONResponse({"error": text}, status)
