"""The Socket Mode client: one live connection, replaced without losing what the old one still delivers.

Slack: apps.connections.open gives a single-use ticket per connection; a connection is ready after ``hello``;
``disconnect`` announces the end of one, and Slack keeps sending on it until it closes it. The ticket's URL is
a secret: neither it nor an exception that may hold it is ever logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Literal

from msgspec import Struct

from codebutler.chat.slack.link import Handler, SocketLink, SocketTiming, Tally, open_wire
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatAuthError, ChatError, ChatRateLimitedError
from codebutler.platform.tasks import Tasks, first_of, full_jitter_s, settled_within

SocketState = Literal["connecting", "connected", "reconnecting", "disabled", "auth_failed", "stopped"]
Opener = Callable[[], Awaitable[str]]

PLANNED = frozenset({"warning", "refresh_requested", "disconnect"})
LINK_DISABLED = "link_disabled"
TOO_MANY = "too_many_websockets"
SWITCHED_OFF = (
    "Socket Mode is switched off for this app: switch it on (app settings, Socket Mode), then restart"
)
SHARED = (
    "{others} other connection(s) use this app's token: another CodeButler, or another program, receives "
    "some of the messages, commands and clicks instead of this one. Stop it, or create a Slack app for each machine "
    "(`codebutler manifest --link`, then `codebutler setup`)"
)
DEFAULT_TIMING = SocketTiming()

log = logging.getLogger("codebutler.chat.slack.socket")


class SocketStatus(Struct, frozen=True, kw_only=True):
    """The client's state. ``connections``: open now. ``last_event_age_s``: since the last hello or event, None before
    the first. ``other_consumers``: connections of the same app that are not ours, by the last count; ``trouble``
    reports them once a second count confirms them: Slack may count one of ours that has just ended. ``catching_up``:
    missed messages are being fetched."""

    state: SocketState
    connections: int = 0
    reconnects: int = 0
    last_event_age_s: float | None = None
    other_consumers: int = 0
    dropped_frames: int = 0
    failed_handlers: int = 0
    lost_acks: int = 0
    trouble: str = ""
    catching_up: bool = False


class SocketModeClient:
    """Receives envelopes and acknowledges each on its own connection after ``handler`` has returned.

    Handlers run concurrently and are started in order of arrival. An envelope whose handler raises is not
    acknowledged: Slack sends it again. ``run`` ends after ``stop``, or by itself if Slack has switched Socket
    Mode off (``disabled``) or refuses the token from the start (``auth_failed``); ``status`` says which. A
    token that worked before is retried forever: it may be revoked only temporarily.
    """

    def __init__(
        self,
        opener: Opener,
        handler: Handler,
        clock: Clock,
        rng: Random,
        on_status: Callable[[SocketStatus], None] | None = None,
        timing: SocketTiming = DEFAULT_TIMING,
    ) -> None:
        self._opener = opener
        self._handler = handler
        self._clock = clock
        self._rng = rng
        self._on_status = on_status
        self._timing = timing
        self._state: SocketState = "connecting"
        self._trouble = ""
        self._links: set[SocketLink] = set()
        self._drains = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._connected = asyncio.Event()
        self._stopping = asyncio.Event()
        self._finished = asyncio.Event()
        self._running = False
        self._hopeless = False
        self._tally = Tally()
        self._failures = 0
        self._wait_at_least_s = 0.0
        self._opened = 0
        self._other_consumers = 0
        self._shared = ""

    @property
    def status(self) -> SocketStatus:
        """The socket's current state."""
        tally = self._tally
        age_s = None if tally.last_event_s is None else self._clock.monotonic() - tally.last_event_s
        return SocketStatus(
            state=self._state,
            connections=sum(link.hello.is_set() and not link.closed.is_set() for link in self._links),
            reconnects=max(0, self._opened - 1),
            last_event_age_s=age_s,
            other_consumers=self._other_consumers,
            dropped_frames=tally.dropped_frames,
            failed_handlers=tally.failed_handlers,
            lost_acks=tally.lost_acks,
            trouble=self._trouble or self._shared,
        )

    async def wait_connected(self) -> None:
        """Wait for a connection. Raises ChatAuthError or ChatError if there will be none."""
        await first_of(self._connected.wait(), self._finished.wait())
        if self._finished.is_set():
            error = ChatAuthError if self._state == "auth_failed" else ChatError
            raise error(self._trouble or "the connection to Slack is stopped")

    def rebuild(self) -> None:
        """Drop every connection and make a new one: for connections that only seem to live."""
        for link in self._links:
            link.abort()

    async def stop(self) -> None:
        """Make ``run`` accept nothing more, finish running handlers, close and return; wait for that."""
        self._stopping.set()
        if self._running:
            await self._finished.wait()

    async def run(self) -> None:
        """Serve until stopped, disabled or refused. Once only."""
        self._running = True
        try:
            await first_of(self._serve(), self._stopping.wait())
        finally:
            await self._wind_up()

    async def _serve(self) -> None:
        previous: SocketLink | None = None
        while not self._hopeless:
            await self._clock.sleep(self._pause_s())
            link = await self._open()
            if link is None:
                continue
            if previous is not None:
                # Only now: until its successor is there, the old connection is the only one.
                self._drain(previous)
            previous = link = await self._renewing(link)
            reason = link.ended.result()
            lived = self._clock.monotonic() - link.opened_s >= self._timing.healthy_s
            self._replace(reason, lived=lived)

    async def _renewing(self, link: SocketLink) -> SocketLink:
        """Serve until the connection has to be replaced, also replacing it now and then to count the app's
        connections; returns the last one."""
        timing = self._timing
        while True:
            suspected = self._other_consumers and not self._shared
            wait_s = timing.recount_s if suspected else timing.count_s
            if await settled_within(self._clock, link.ended, wait_s):
                return link
            if fresh := await self._another():
                self._drain(link)
                link = fresh

    async def _another(self) -> SocketLink | None:
        """One more ready connection while the present one serves; None, without any loss, if there is none."""
        try:
            link = await self._dial()
        except Exception as error:  # noqa: BLE001 - the present connection tells whether something is wrong
            log.debug("could not open a connection to count this app's connections: %s", type(error).__name__)
            return None
        if await link.first_word() is not None:
            link.abort()
            return None
        was_shared = self._shared
        self._welcome(link)
        if (was_shared or self._shared) and self._on_status is not None:
            self._on_status(self.status)
        return link

    def _pause_s(self) -> float:
        timing = self._timing
        wait_s = full_jitter_s(self._rng, self._failures, timing.backoff_base_s, timing.backoff_cap_s)
        wait_s = max(wait_s, self._wait_at_least_s)
        self._wait_at_least_s = 0.0
        return wait_s

    def _replace(self, reason: str, *, lived: bool = False) -> None:
        """A connection has to be replaced. A hello does not reset the count of failures: only a connection
        that ``lived`` does."""
        self._connected.clear()
        if lived:
            self._failures = 0
        if not (lived and reason in PLANNED):
            self._failures += 1
        if reason == LINK_DISABLED:
            self._give_up("disabled", SWITCHED_OFF)
            return
        if reason == TOO_MANY:
            self._wait_at_least_s = self._rng.uniform(0.5, 1.0) * self._timing.crowded_s
            log.warning(
                "Slack reports too many connections for this app: is another process using its token?"
            )
        self._enter("reconnecting", "" if reason in PLANNED else reason)

    async def _open(self) -> SocketLink | None:
        """A ready connection, or None after recording why not."""
        try:
            link = await self._dial()
        except ChatAuthError as error:
            self._refused(error)
            return None
        except Exception as error:  # noqa: BLE001 - whatever it was, a deaf supervisor is worse than trying again
            self._note_failure(error)
            return None
        if (reason := await link.first_word()) is not None:
            link.abort()
            self._replace(reason)
            return None
        self._opened += 1
        self._welcome(link)
        return link

    async def _dial(self) -> SocketLink:
        """A new connection, before Slack's hello. Raises any network error."""
        async with asyncio.timeout(self._timing.open_timeout_s):
            url = await self._opener()
        wire = await open_wire(url, self._timing)
        self._links = {link for link in self._links if not link.closed.is_set()}
        link = SocketLink(wire, self._handler, self._clock, self._timing, self._tally)
        self._links.add(link)
        link.start()
        return link

    def _welcome(self, link: SocketLink) -> None:
        link.opened_s = self._clock.monotonic()
        self._count_consumers(link.app_connections)
        self._connected.set()
        self._enter("connected")

    def _count_consumers(self, app_connections: int) -> None:
        others = max(0, app_connections - sum(not link.closed.is_set() for link in self._links))
        told = SHARED.format(others=others) if others and self._other_consumers else ""
        if told and not self._shared:
            log.warning("%s", told)
        elif self._shared and not told:
            log.info("no other process uses this app's token any more")
        self._other_consumers, self._shared = others, told

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        if isinstance(error, ChatRateLimitedError):
            self._wait_at_least_s = error.retry_after_s
        # The text of the library's exceptions may contain the URL; that of ours does not.
        words = str(error) if isinstance(error, ChatError) else type(error).__name__
        if self._failures == 1 or self._trouble != words:
            log.warning("cannot connect to Slack: %s; retrying", words)
        self._enter("reconnecting" if self._opened else "connecting", words)

    def _refused(self, error: ChatAuthError) -> None:
        if not self._opened:
            self._give_up("auth_failed", str(error))
            return
        self._failures += 1
        if self._state != "auth_failed":
            log.error("%s", error)
        self._enter("auth_failed", str(error))

    def _give_up(self, state: SocketState, trouble: str) -> None:
        log.error("%s", trouble)
        self._hopeless = True
        self._enter(state, trouble)

    def _enter(self, state: SocketState, trouble: str = "") -> None:
        changed = (state, trouble) != (self._state, self._trouble)
        self._state, self._trouble = state, trouble
        if changed and self._on_status is not None:
            self._on_status(self.status)

    def _drain(self, link: SocketLink) -> None:
        self._drains.start(link.retire(), name="slack-socket-drain")

    async def _wind_up(self) -> None:
        await self._drains.close(0)
        await asyncio.gather(*(link.finish() for link in self._links), return_exceptions=True)
        self._connected.clear()
        if not self._hopeless:
            self._enter("stopped")
        self._finished.set()
