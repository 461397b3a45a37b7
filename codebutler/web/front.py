"""The supervisor's port: hooks are called there, and the dashboard is looked at.

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

from codebutler.config.schema import DashboardSection
from codebutler.domain.errors import CodeButlerError
from codebutler.platform.http import is_loopback, listen
from codebutler.web.hooks import Hooks

if TYPE_CHECKING:
    from starlette.types import ASGIApp

PORTS = 20
"""So many ports after the configured one are tried."""
OFF = "dashboard.enabled is false"

log = logging.getLogger("codebutler.web")


class Site(Protocol):
    """The dashboard."""

    def app(self, bound_to: str) -> ASGIApp:
        """Loads what it needs: not from the event loop."""

    def ticket(self) -> str:
        """Lets one browser in, once."""

    def close(self) -> None:
        """Let go of everybody who looks."""


class Front:
    """``run`` is its life. ``trouble``: why nothing listens, "" if it does."""

    def __init__(self, place: DashboardSection, hooks: Hooks, site: Site) -> None:
        self._place = place
        self._hooks = hooks
        self._site = site
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
                f"there is no dashboard: {self.trouble or 'it is not there yet, try again'}"
            )
        return f"{self.url}#{self._site.ticket()}"

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
                    self._site.close()
        finally:
            self.url = ""

    def _loaded(self, listener: socket.socket) -> AbstractAsyncContextManager[None]:
        """In a thread: the loop does not wait for what has to be read from disk."""
        from starlette.applications import Starlette
        from starlette.routing import Mount

        from codebutler.platform.http_server import BoundedProtocol, serving

        hooks, page = self._hooks.app(), self._site.app(self._place.host)
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
