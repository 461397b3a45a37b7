"""``POST /hooks/<name>``: authenticated, bounded, and only where a hook is configured."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import uuid4

import msgspec

from codebutler.clock import Clock
from codebutler.config.schema import DashboardSection
from codebutler.errors import ChatError, CodeButlerError, StoreError
from codebutler.intake.intake import Outcome
from codebutler.schedule.hooks import Hook

MAX_BODY_BYTES = 2**20
PER_MINUTE = 30
BODY_S = 30.0
"""A caller that sends its body more slowly is let go: whoever may connect could keep us busy."""
PORTS = 20

log = logging.getLogger("codebutler.web")


class Callee(Protocol):
    """The schedule."""

    hooks: Mapping[str, Hook]

    async def called(self, hook: Hook, body: object, key: str) -> Outcome: ...


class HookServer:
    """Listens once there is a hook. ``use`` says so; ``run`` is its life."""

    def __init__(
        self, callee: Callee, place: DashboardSection, clock: Clock, *, body_s: float = BODY_S
    ) -> None:
        self._callee = callee
        self._place = place
        self._clock = clock
        self._wanted = asyncio.Event()
        self._body_s = body_s
        self._calls: dict[str, list[float]] = {}
        self.url = ""
        self.listening = asyncio.Event()

    def use(self, hooks: Mapping[str, Hook]) -> None:
        """These hooks can be called."""
        if hooks:
            self._wanted.set()

    async def run(self) -> None:
        """Until cancelled. A port that cannot be had, or is not to be, is logged, and there are no hooks."""
        await self._wanted.wait()
        if not self._place.enabled:
            log.warning("hooks cannot be called: dashboard.enabled is false")
            return
        # A supervisor without hooks needs no web server, and is ready sooner without it.
        from codebutler.web.serving import listen, serving

        try:
            listener = listen(self._place.host, self._place.port, or_next=PORTS)
        except CodeButlerError as error:
            log.error("hooks cannot be called: %s", error)  # noqa: TRY400 - one line says it all
            return
        host, port = listener.getsockname()[:2]
        self.url = f"http://{host}:{port}/hooks/"
        log.info("hooks can be called at %s", self.url)
        async with serving(self._app(), listener):
            self.listening.set()
            await asyncio.Event().wait()

    async def call(self, name: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """(HTTP status, one line). Who does not know the secret cannot tell which hooks there are."""
        hook = self._callee.hooks.get(name)
        if hook is None or not hook.admits(body, headers):
            return 401, "no such hook, or the wrong secret"
        if not self._may(name):
            return 429, f"more than {PER_MINUTE} calls in a minute"
        key = hook.key(headers)
        try:
            outcome = await self._callee.called(hook, _decoded(body), key or uuid4().hex)
        except (ChatError, StoreError) as error:
            log.warning("the hook %s could not be carried out: %s", name, error)
            return 503, "it could not be carried out now: try again"
        match outcome:
            case "duplicate" if "x-hub-signature-256" in headers:
                return (
                    409,
                    "this body came before, and nothing is done twice: sign one that says when it is from",
                )
            case "refused" | "ignored":
                return 403, "authorization.rules of this repository do not allow it"
        return 202, "accepted"

    def _may(self, name: str) -> bool:
        now_s = self._clock.monotonic()
        recent = [at_s for at_s in self._calls.get(name, []) if now_s - at_s < 60]
        self._calls[name] = recent if len(recent) >= PER_MINUTE else [*recent, now_s]
        return len(recent) < PER_MINUTE

    def _app(self) -> Callable[..., object]:
        from starlette.applications import Starlette
        from starlette.requests import ClientDisconnect, Request
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Route

        async def post(request: Request) -> Response:
            body = bytearray()
            try:
                async with asyncio.timeout(self._body_s):
                    async for chunk in request.stream():
                        body += chunk
                        if len(body) > MAX_BODY_BYTES:
                            return PlainTextResponse("the body is larger than 1 MiB\n", 413)
            except (TimeoutError, ClientDisconnect):
                return PlainTextResponse("the body did not come\n", 408, {"Connection": "close"})
            status, line = await self.call(request.path_params["name"], request.headers, bytes(body))
            return PlainTextResponse(f"{line}\n", status)

        return Starlette(routes=[Route("/hooks/{name}", post, methods=["POST"])])


def _decoded(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode(errors="replace")
