"""The supervisor's port: the dashboard, ``GET /metrics``, and ``POST /hooks/<name>`` (authenticated, bounded, only if
configured).

It listens from the start, but loads no web server until the first connection, which waits in the listener's queue
until the server is ready.

``GET /metrics`` for Prometheus, on the dashboard's port: only for addresses that the configuration allows. The
response names repositories and their costs, so by default nobody may read it. Pages of other sites cannot: browsers
hide our response from them, and foreign host names that resolve to us are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import uuid4

import msgspec

from codebutler.config.section import DashboardSection, MetricsSection
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, CodeButlerError, StoreError
from codebutler.observe.metrics import MetricsFacts, exposition
from codebutler.platform.http import admits, is_everywhere, is_local_url, is_loopback, listen
from codebutler.platform.processes import leave_open, left_open
from codebutler.platform.signals import Stopping
from codebutler.schedule.hooks import HookRunner
from codebutler.web.dashboard.dashboard import Dashboard

if TYPE_CHECKING:
    from starlette.routing import Route
    from starlette.types import ASGIApp


METRICS_OFF = "Metrics are off: set metrics.allow, then restart the supervisor"
METRICS_REFUSED = "Refused: metrics.allow does not include this address, or metrics.token is missing or wrong"
PORTS = 20
"""How many ports after the configured one are tried."""
DASHBOARD_OFF = "dashboard.enabled is false"
MAX_BODY_BYTES = 2**20
PER_MINUTE, PULLS_PER_MINUTE = 30, 600
"""Calls of a hook; each of a pull request's checks may call when it begins and when it ends."""
BODY_S = 30.0
"""Callers that send their body more slowly are disconnected: anyone who may connect could keep us busy."""

log = logging.getLogger("codebutler.web")


class MetricsPage:
    """The page for Prometheus. ``read_facts`` reads the current state."""

    def __init__(self, section: MetricsSection, read_facts: Callable[[], Awaitable[MetricsFacts]]) -> None:
        self._section = section
        self._read_facts = read_facts

    def admits(self, address: str, authorization: str) -> bool:
        """Whether a client may read it. Clients beyond this machine need a token."""
        if not any(_is_within(address, network) for network in self._section.allow):
            return False
        token = self._section.token
        if not token:
            return ip_address(address).is_loopback
        return hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())

    def route(self, bound_to: str) -> Route:
        """Imports Starlette: do not call from the event loop."""
        from starlette.requests import Request
        from starlette.responses import PlainTextResponse, Response
        from starlette.routing import Route

        async def scrape(request: Request) -> Response:
            if not self._section.allow:
                return PlainTextResponse(f"{METRICS_OFF}\n", 404)
            headers, address = request.headers, request.client.host if request.client else ""
            is_own_host = admits(headers.get("host", ""), headers.get("origin"), bound_to)
            if not is_own_host or not self.admits(address, headers.get("authorization", "")):
                return PlainTextResponse(f"{METRICS_REFUSED}\n", 403)
            body, kind = await asyncio.to_thread(exposition, await self._read_facts())
            return Response(body, media_type=kind)

        return Route("/metrics", scrape)


def _is_within(address: str, network: str) -> bool:
    try:
        return ip_address(address) in ip_network(network, strict=False)
    except ValueError:
        return False


class DashboardAddress:
    """The dashboard's address; "" while nothing listens."""

    def __init__(self) -> None:
        self.url = ""

    def url_for(self, workspace_url: str) -> str:
        """The address, if readers of the workspace at that address can open it. A workspace on loopback is read on
        this machine; other readers can reach only an address of its own."""
        host = urlsplit(self.url).hostname or ""
        if is_loopback(host):
            return self.url if is_local_url(workspace_url) else ""
        return "" if is_everywhere(host) else self.url


class WebServer:
    """The supervisor's web server; ``run`` serves until cancelled. ``trouble``: why nothing listens, "" if it does."""

    def __init__(
        self,
        section: DashboardSection,
        hooks: Hooks,
        dashboard: Dashboard,
        address: DashboardAddress,
        metrics: MetricsPage | None = None,
        stopping: Stopping | None = None,
    ) -> None:
        self._stopping = stopping or Stopping()
        self._address = address
        self._section = section
        self._metrics = metrics
        self._hooks = hooks
        self._dashboard = dashboard
        self._has_hooks = False
        self.trouble = "" if section.enabled else DASHBOARD_OFF
        self.listening = asyncio.Event()

    @property
    def url(self) -> str:
        """Where it listens, "" if it does not."""
        return self._address.url

    def enable_hooks(self, hooks: Mapping[str, object]) -> None:
        """Enable these hooks."""
        if hooks and not self._has_hooks:
            self._has_hooks = True
            self._log_hooks()

    def link(self) -> str:
        """The dashboard's address for a browser; it works once. Raises CodeButlerError when nothing listens."""
        if not self.url:
            raise CodeButlerError(
                f"there is no dashboard: {self.trouble or 'it is still starting, try again'}"
            )
        return f"{self.url}#{self._dashboard.ticket()}"

    async def run(self) -> None:
        """Until cancelled. If the port cannot be opened, that is logged: then there are no hooks and no dashboard."""
        host, port = self._section.host, self._section.port
        inherited = left_open(host, range(port, port + PORTS + 1))
        if not self._section.enabled:
            if inherited is not None:
                inherited.close()
            return
        try:
            listener = inherited or listen(host, port, or_next=PORTS)
        except CodeButlerError as error:
            self.trouble = str(error)
            log.error("the dashboard and hooks are unavailable: %s", error)  # noqa: TRY400 - one line says it all
            return
        with contextlib.closing(listener):
            self._on_listening(listener)
            try:
                await _wait_for_connection(listener)
                await self._serve(listener)
            finally:
                if self._stopping.restarts:
                    leave_open(listener)

    def _on_listening(self, listener: socket.socket) -> None:
        host, port = listener.getsockname()[:2]
        self._address.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        log.info("Dashboard: %s (`codebutler dashboard` opens it)", self.url)
        if not is_loopback(host):
            log.warning(
                "dashboard.host is %s: anybody on the network between you and it can read the dashboard and act "
                "as you; 127.0.0.1 and a tunnel keep it private",
                self._section.host,
            )
        if self._has_hooks:
            self._log_hooks()
        self.listening.set()

    async def _serve(self, listener: socket.socket) -> None:
        try:
            async with await asyncio.to_thread(self._load_app, listener.dup()):
                try:
                    await asyncio.Event().wait()
                finally:
                    self._dashboard.close()
        finally:
            self._address.url = ""

    def _load_app(self, listener: socket.socket) -> AbstractAsyncContextManager[None]:
        """In a thread: the event loop must not wait for the disk."""
        from starlette.applications import Starlette
        from starlette.routing import Mount

        from codebutler.platform.http_server import BoundedProtocol, serving

        hooks, page = self._hooks.app(), self._dashboard.app(self._section.host)
        metrics = [self._metrics.route(self._section.host)] if self._metrics else []
        app = Starlette(routes=[Mount("/hooks", hooks), *metrics, Mount("/", page)])
        return serving(app, listener, BoundedProtocol)

    def _log_hooks(self) -> None:
        if not self._section.enabled:
            log.warning("hooks are unavailable: %s", DASHBOARD_OFF)
        elif self.url:
            log.info("hooks can be called at %shooks/", self.url)


async def _wait_for_connection(listener: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    connected = asyncio.Event()
    loop.add_reader(listener, connected.set)
    try:
        await connected.wait()
    finally:
        loop.remove_reader(listener)


class Hooks:
    """Responds to hook calls."""

    def __init__(self, runner: HookRunner, clock: Clock, *, body_s: float = BODY_S) -> None:
        self._runner = runner
        self._clock = clock
        self._body_s = body_s
        self._calls: dict[str, list[float]] = {}

    async def call(self, name: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """(HTTP status, one line). Without the secret, nobody can tell which hooks exist."""
        hook = self._runner.hooks.get(name)
        if hook is None or not hook.admits(body, headers):
            return 401, "no such hook, or the wrong secret"
        limit = PULLS_PER_MINUTE if hook.pulls else PER_MINUTE
        if not self._is_within_rate(name, limit):
            return 429, f"more than {limit} calls in a minute"
        key = hook.key(headers)
        try:
            outcome = await self._runner.called(hook, _decode_body(body), key or uuid4().hex)
        except (ChatError, StoreError) as error:
            log.warning("could not run the hook %s: %s", name, error)
            return 503, "the hook could not be run now: try again"
        match outcome:
            case "duplicate" if "x-hub-signature-256" in headers:
                return (409, "duplicate: this signed body was accepted before; include a timestamp in it")
            case "refused" | "ignored":
                return 403, "authorization.rules of this repository do not allow it"
        return 202, "accepted"

    def _is_within_rate(self, name: str, limit: int) -> bool:
        now_s = self._clock.monotonic()
        recent = [at_s for at_s in self._calls.get(name, []) if now_s - at_s < 60]
        self._calls[name] = recent if len(recent) >= limit else [*recent, now_s]
        return len(recent) < limit

    def app(self) -> ASGIApp:
        """The application that is mounted at ``/hooks``."""
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


def _decode_body(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body.decode(errors="replace")
