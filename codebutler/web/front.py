"""The supervisor's port: the dashboard, and ``POST /hooks/<name>`` (authenticated, bounded, only where configured).

It is open from the start, yet nothing of a web server is loaded before somebody comes: the first who connects waits
in the listener's queue until it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import msgspec

from codebutler.config.schema import DashboardSection
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError, StoreError
from codebutler.intake.intake import Outcome
from codebutler.platform.http import is_loopback, listen
from codebutler.schedule.jobs import Hook
from codebutler.web.dashboard.dashboard import Dashboard

if TYPE_CHECKING:
    from starlette.types import ASGIApp


PORTS = 20
"""So many ports after the configured one are tried."""
OFF = "dashboard.enabled is false"

log = logging.getLogger("codebutler.web")
MAX_BODY_BYTES = 2**20
PER_MINUTE = 30
BODY_S = 30.0
"""A caller that sends its body more slowly is let go: whoever may connect could keep us busy."""


class WebServer:
    """``run`` is its life. ``trouble``: why nothing listens, "" if it does."""

    def __init__(self, place: DashboardSection, hooks: Hooks, dashboard: Dashboard) -> None:
        self._place = place
        self._hooks = hooks
        self._dashboard = dashboard
        self._has_hooks = False
        self.trouble = "" if place.enabled else OFF
        self.url = ""
        self.listening = asyncio.Event()

    def use(self, hooks: Mapping[str, object]) -> None:
        """These hooks can be called."""
        if hooks and not self._has_hooks:
            self._has_hooks = True
            self._tell_hooks()

    def link(self) -> str:
        """Where a browser sees the dashboard; it opens once. Raises CodeButlerError when nothing listens."""
        if not self.url:
            raise CodeButlerError(
                f"there is no dashboard: {self.trouble or 'it is still starting, try again'}"
            )
        return f"{self.url}#{self._dashboard.ticket()}"

    async def run(self) -> None:
        """Until cancelled. A port that cannot be had is logged: there are no hooks and no dashboard then."""
        if not self._place.enabled:
            return
        try:
            listener = listen(self._place.host, self._place.port, or_next=PORTS)
        except CodeButlerError as error:
            self.trouble = str(error)
            log.error("no dashboard and no hooks: %s", error)  # noqa: TRY400 - one line says it all
            return
        with contextlib.closing(listener):
            self._opened(listener)
            await _somebody_at(listener)
            await self._serve(listener)

    def _opened(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        log.info("Dashboard: %s (`codebutler dashboard` opens it)", self.url)
        if not is_loopback(host):
            log.warning(
                "dashboard.host is %s: whoever is between you and it can read what the dashboard shows; "
                "127.0.0.1 and a tunnel keep it private",
                self._place.host,
            )
        if self._has_hooks:
            self._tell_hooks()
        self.listening.set()

    async def _serve(self, listener: socket.socket) -> None:
        try:
            async with await asyncio.to_thread(self._loaded, listener):
                try:
                    await asyncio.Event().wait()
                finally:
                    self._dashboard.close()
        finally:
            self.url = ""

    def _loaded(self, listener: socket.socket) -> AbstractAsyncContextManager[None]:
        """In a thread: the loop does not wait for what has to be read from disk."""
        from starlette.applications import Starlette
        from starlette.routing import Mount

        from codebutler.platform.http_server import BoundedProtocol, serving

        hooks, page = self._hooks.app(), self._dashboard.app(self._place.host)
        app = Starlette(routes=[Mount("/hooks", hooks), Mount("/", page)])
        return serving(app, listener, BoundedProtocol)

    def _tell_hooks(self) -> None:
        if not self._place.enabled:
            log.warning("hooks cannot be called: %s", OFF)
        elif self.url:
            log.info("hooks can be called at %shooks/", self.url)


async def _somebody_at(listener: socket.socket) -> None:
    """Until somebody connects; they are not accepted yet."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(listener, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(listener)


class Callee(Protocol):
    """The schedule."""

    hooks: Mapping[str, Hook]

    async def called(self, hook: Hook, body: object, key: str) -> Outcome:
        """Carry a call out once for each ``key``; what became of it. Raises ChatError, StoreError."""


class Hooks:
    """What answers when a hook is called."""

    def __init__(self, callee: Callee, clock: Clock, *, body_s: float = BODY_S) -> None:
        self._callee = callee
        self._clock = clock
        self._body_s = body_s
        self._calls: dict[str, list[float]] = {}

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
            log.warning("the hook %s could not be run: %s", name, error)
            return 503, "the hook could not be run now: try again"
        match outcome:
            case "duplicate" if "x-hub-signature-256" in headers:
                return (
                    409,
                    "duplicate: this signed body was accepted before; include a timestamp in it",
                )
            case "refused" | "ignored":
                return 403, "authorization.rules of this repository do not allow it"
        return 202, "accepted"

    def _may(self, name: str) -> bool:
        now_s = self._clock.monotonic()
        recent = [at_s for at_s in self._calls.get(name, []) if now_s - at_s < 60]
        self._calls[name] = recent if len(recent) >= PER_MINUTE else [*recent, now_s]
        return len(recent) < PER_MINUTE

    def app(self) -> ASGIApp:
        """To be mounted at ``/hooks``."""
        from starlette.applications import Starlette
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Route

        from codebutler.platform.http_server import read_body

        async def post(request: Request) -> Response:
            body = await read_body(request, MAX_BODY_BYTES, self._body_s)
            if isinstance(body, Response):
                return body
            status, line = await self.call(request.path_params["name"], request.headers, body)
            return PlainTextResponse(f"{line}\n", status)

        return Starlette(routes=[Route("/{name}", post, methods=["POST"])])


def _decoded(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")
