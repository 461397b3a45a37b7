"""The Web API over HTTP: authentication, arguments, rate limits (always counted, and enforced on request), and faults
that are injected on request.

Source of the limits: Slack's tiers of 1, 20, 50 and 100 calls a minute per method; one message a second and channel for
chat.postMessage, with short bursts, and several hundred a minute for the whole workspace.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from math import ceil
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from codebutler.domain.clock import Clock
from codebutler.platform.http import admits
from codebutler.workspace.call import Call, Params, WorkspaceContext, parse_params
from codebutler.workspace.methods import METHODS
from codebutler.workspace.methods.files import MAX_FILE_BYTES
from codebutler.workspace.state import BOT_SCOPES, Json, MethodError, User

PER_MINUTE = {
    "chat.update": 50,
    "chat.delete": 50,
    "reactions.add": 50,
    "reactions.get": 50,
    "reactions.remove": 20,
    "conversations.list": 20,
    "conversations.create": 20,
    "conversations.info": 50,
    "conversations.join": 50,
    "conversations.history": 50,
    "conversations.replies": 50,
    "apps.connections.open": 50,
    "chat.scheduleMessage": 50,
    "chat.deleteScheduledMessage": 50,
    "chat.scheduledMessages.list": 50,
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "pins.add": 20,
    "pins.remove": 20,
    "pins.list": 20,
    "reactions.list": 20,
    "files.list": 50,
    "files.delete": 50,
    "users.lookupByEmail": 50,
    "assistant.threads.setStatus": 600,
    "users.list": 20,
}
DEFAULT_PER_MINUTE = 100
POST_BURST = 6
POSTS_PER_S, POSTS_BURST = 5.0, 60
"""For the whole workspace: the low end of "several hundred a minute"."""
Kind = Literal["rate_limit", "status", "error", "delay", "reset", "lost", "hang"]
MAX_BODY_BYTES = 4_000_000
WITHOUT_TOKEN = frozenset({"api.test"})
FOR_APP_TOKEN = frozenset({"api.test", "apps.connections.open"})
LOGIN_PAGE = (
    "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Sign in to this workspace</body></html>"
)
LOOPBACK = "127.0.0.1"
TRANSPORT = "codebutler.transport"
_FORBIDDEN = PlainTextResponse("forbidden: open the address that was printed\n", 403)


class Disconnect(msgspec.Struct, forbid_unknown_fields=True):
    """How the app's connections end; ``drop`` cuts them without warning, ``deafen`` keeps them open without
    events."""

    reason: Literal["warning", "refresh_requested", "link_disabled", "too_many_websockets", "drop", "deafen"]


class Fault(Struct, kw_only=True, forbid_unknown_fields=True):
    """A scripted fault for the next ``times`` calls of ``method`` (``*``: any; ``files.upload`` and
    ``files.download`` are the two file transfers); with ``only_app``, only calls of the app under test. ``kind``:
    ``rate_limit`` (429 with Retry-After), ``status`` (that HTTP status), ``error`` (ok:false with that code),
    ``delay`` (responds ``delay_s`` late), ``reset`` (connection dropped, nothing done), ``lost`` (done, then the
    connection dropped), ``hang`` (done, never answered)."""

    method: str
    kind: Kind
    times: int = 1
    retry_after_s: int = 1
    status: int = 500
    error: str = "internal_error"
    delay_s: float = 1.0
    only_app: bool = False


class Faults:
    """The pending faults, in the order they were added, each method separately."""

    def __init__(self) -> None:
        self._queue: deque[Fault] = deque()

    def add(self, fault: Fault) -> None:
        """Add a fault; one for no calls (``times`` 0 or less) is ignored."""
        if fault.times > 0:
            self._queue.append(fault)

    def take(self, method: str, *, by_app: bool = True) -> Fault | None:
        """The fault for this call, which counts as used."""
        for fault in self._queue:
            if fault.method in (method, "*") and (by_app or not fault.only_app):
                fault.times -= 1
                if fault.times == 0:
                    self._queue.remove(fault)
                return fault
        return None

    def pending(self) -> tuple[Fault, ...]:
        """The pending faults, oldest first; ``times`` is the number of calls left."""
        return tuple(self._queue)

    def clear(self) -> None:
        """Clear the pending faults."""
        self._queue.clear()


class WebApi:
    """Answers ``/api/<method>``, uploads and downloads."""

    def __init__(self, context: WorkspaceContext, faults: Faults, clock: Clock, limits: RateLimits) -> None:
        self._context = context
        self.faults = faults
        self._clock = clock
        self.limits = limits

    async def call(self, request: Request) -> Response:
        """Every refusal is HTTP 200 with ok:false, as Slack's; only rate limits are 429."""
        method = request.path_params["method"]
        body = await read_body(request, MAX_BODY_BYTES)
        return await self._with_faults(request, method, lambda: self._answer(request, method, body))

    async def upload(self, request: Request) -> Response:
        """The upload, to the one-time URL from files.getUploadURLExternal."""
        body = await read_body(request, MAX_FILE_BYTES)
        return await self._with_faults(request, "files.upload", lambda: self._store_upload(request, body))

    async def download(self, request: Request) -> Response:
        """A file's bytes for users who may read it; everybody else gets HTTP 200 and the login page, as from
        Slack."""
        return await self._with_faults(request, "files.download", lambda: self._file_response(request))

    async def _with_faults(self, request: Request, method: str, answer: Callable[[], Response]) -> Response:
        fault = self.faults.take(method, by_app=self._is_app(request))
        if fault is None:
            return answer()
        if fault.kind == "rate_limit":
            return _rate_limited(fault.retry_after_s)
        if fault.kind == "status":
            return PlainTextResponse("injected fault\n", fault.status)
        if fault.kind == "error":
            return JSONResponse({"ok": False, "error": fault.error})
        return await self._drop_or_wait(request, fault, answer)

    def _is_app(self, request: Request) -> bool:
        """Whether the app may be calling, rather than a person or guest: an upload, and a token in a form, do not
        show who it is."""
        user = self._context.workspace.by_token(bearer_token(request))
        return user is None or user.id == self._context.workspace.bot.id

    async def _drop_or_wait(self, request: Request, fault: Fault, answer: Callable[[], Response]) -> Response:
        if fault.kind == "delay":
            await self._clock.sleep(fault.delay_s)
            return answer()
        response = None if fault.kind == "reset" else answer()
        if fault.kind == "hang":
            await _wait_for_disconnect(request)
        transport = transport_of(request)
        if transport is not None:
            transport.abort()
            await asyncio.sleep(0)
        return response or PlainTextResponse("reset\n", 502)

    def _answer(self, request: Request, method: str, body: bytes) -> Response:
        try:
            params = parse_params(request.headers.get("content-type", ""), request.url.query, body)
            token = bearer_token(request) or params.text("token")
            user = None if method in WITHOUT_TOKEN and not token else self._caller(token)
            if wait_s := self._wait_s(method, user, params):
                return _rate_limited(wait_s)
            handler = METHODS.get(method)
            if handler is None:
                raise MethodError("unknown_method")
            if user is None and method not in FOR_APP_TOKEN:
                raise MethodError("not_allowed_token_type")
            result = handler(Call(self._context, user, params))
        except MethodError as error:
            return JSONResponse(error_body(error))
        headers = {"x-oauth-scopes": BOT_SCOPES} if user is not None and user.is_bot else {}
        return JSONResponse({"ok": True, **result}, headers=headers)

    def _caller(self, token: str) -> User | None:
        """The token's user; None for the app-level token. Raises MethodError not_authed, invalid_auth."""
        if not token:
            raise MethodError("not_authed")
        if token == self._context.workspace.app_token:
            return None
        if found := self._context.workspace.by_token(token):
            return found
        raise MethodError("invalid_auth")

    def _wait_s(self, method: str, user: User | None, params: Params) -> int:
        """Only the app has rate limits, not the people and guests."""
        if user is not None and user.id != self._context.workspace.bot.id:
            return 0
        return self.limits.wait_s(method, params.text("channel"))

    def _store_upload(self, request: Request, body: bytes) -> Response:
        stored = self._context.uploads.pop(request.path_params["ticket"], None)
        if stored is None:
            return PlainTextResponse("no such upload\n", 404)
        if len(body) != stored.length_bytes:
            return PlainTextResponse("the length differs from the announced one\n", 400)
        stored.content = body
        return PlainTextResponse(f"OK - {len(body)}")

    def _file_response(self, request: Request) -> Response:
        """Like Slack, sends HTTP 200 and a login page to users who may not read the file."""
        workspace = self._context.workspace
        user = workspace.by_token(bearer_token(request))
        stored = workspace.files.get(request.path_params["file"])
        if user is None or stored is None or stored.content is None:
            return HTMLResponse(LOGIN_PAGE)
        if not workspace.may_read(user, stored):
            return HTMLResponse(LOGIN_PAGE)
        return Response(
            stored.content,
            media_type=stored.mimetype,
            headers={
                "content-disposition": "attachment",
                "x-content-type-options": "nosniff",
                "content-security-policy": "sandbox",
            },
        )


def bearer_token(request: Request) -> str:
    """The Authorization header's token, or ""."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def error_body(error: MethodError) -> Json:
    """The body of a refused call: ``ok`` false, Slack's error code, and details if there are any."""
    body: Json = {"ok": False, "error": error.code}
    if error.details:
        body["response_metadata"] = {"messages": list(error.details)}
    return body


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Raises MethodError request_too_large beyond ``limit_bytes``."""
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > limit_bytes:
            raise MethodError("request_too_large")
    return bytes(parts)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        continue


def _rate_limited(retry_after_s: int) -> Response:
    return JSONResponse(
        {"ok": False, "error": "ratelimited"}, 429, headers={"retry-after": str(retry_after_s)}
    )


class LoopbackGuard:
    """Refuses a foreign Host (DNS rebinding) and a foreign Origin (another site's page in the browser). Loopback is
    not authentication: tokens are checked behind this. Puts the connection's transport into the scope, so that a
    fault can drop it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI application: the inner one, or 403 (1008 for a websocket)."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = HTTPConnection(scope).headers
        if not admits(headers.get("host", ""), headers.get("origin"), LOOPBACK):
            refusal = WebSocketClose(1008) if scope["type"] == "websocket" else _FORBIDDEN
            await refusal(scope, receive, send)
            return
        scope[TRANSPORT] = getattr(getattr(send, "__self__", None), "transport", None)
        await self._app(scope, receive, send)


def transport_of(connection: HTTPConnection) -> asyncio.Transport | None:
    """The connection's transport; None if the server does not expose it."""
    transport = connection.scope.get(TRANSPORT)
    return transport if isinstance(transport, asyncio.Transport) else None


class _Bucket(Struct):
    tokens: float
    filled_s: float


class RateLimits:
    """A token bucket for each method, and for each channel that gets posts.

    ``calls`` counts all by method, ``violations`` those that Slack would have refused, whether ``enforced``
    or not.
    """

    def __init__(self, clock: Clock, *, enforced: bool = True) -> None:
        self.enforced = enforced
        self.calls: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def wait_s(self, method: str, channel: str) -> int:
        """0 if the call may pass (and is counted), else the Retry-After in whole seconds."""
        self.calls[method] += 1
        wait_s = self._retry_after_s(method, channel)
        if wait_s:
            self.violations[method] += 1
        return wait_s if self.enforced else 0

    def _retry_after_s(self, method: str, channel: str) -> int:
        if method == "chat.postMessage":
            wait_s = self._take_token(f"post {channel}", POST_BURST, 1.0)
            return wait_s or self._take_token(method, POSTS_BURST, POSTS_PER_S)
        per_minute = PER_MINUTE.get(method, DEFAULT_PER_MINUTE)
        return self._take_token(method, per_minute, per_minute / 60)

    def _take_token(self, key: str, burst: int, per_second: float) -> int:
        now_s = self._clock.monotonic()
        bucket = self._buckets.setdefault(key, _Bucket(float(burst), now_s))
        bucket.tokens = min(float(burst), bucket.tokens + (now_s - bucket.filled_s) * per_second)
        bucket.filled_s = now_s
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0
        return ceil((1 - bucket.tokens) / per_second)
