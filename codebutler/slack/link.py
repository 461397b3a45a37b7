"""One Socket Mode connection: reads frames, runs the handler, acknowledges, notices silence, drains."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from codebutler.clock import Clock
from codebutler.process.killpoints import reached
from codebutler.process.waiting import wait_for
from codebutler.slack.endpoint import is_loopback
from codebutler.slack.frames import Disconnect, Envelope, Hello, encode_ack, parse_frame

Handler = Callable[[Envelope], Awaitable[dict[str, Any] | None]]

CLOSED = "closed"
NO_HELLO = "no hello"
MAX_FRAME_BYTES = 16 * 2**20

log = logging.getLogger("codebutler.slack.socket")


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketTiming:
    """All in seconds. A half-open connection is found after ping_interval + ping_timeout + close_timeout at
    the latest, and by the silence watchdog should the pings themselves be stuck."""

    ping_interval_s: float = 10.0
    ping_timeout_s: float = 10.0
    silence_s: float = 25.0
    open_timeout_s: float = 20.0
    hello_timeout_s: float = 15.0
    close_timeout_s: float = 2.0
    drain_s: float = 30.0
    stop_grace_s: float = 5.0
    backoff_base_s: float = 1.0
    backoff_cap_s: float = 60.0
    crowded_s: float = 15.0
    healthy_s: float = 30.0


@dataclass(slots=True)
class Tally:
    """What all connections of one client have met together."""

    last_event_s: float | None = None
    dropped_frames: int = 0
    failed_handlers: int = 0
    lost_acks: int = 0


class Wire(ClientConnection):
    """Notes that bytes came in, whatever they are: pings and pongs prove life too."""

    heard = False

    def data_received(self, data: bytes) -> None:
        self.heard = True
        super().data_received(data)


async def open_wire(url: str, timing: SocketTiming) -> Wire:
    """Connect. Raises OSError, TimeoutError or WebSocketException, whose text may hold the secret URL."""
    # A logger of its own: at DEBUG the library writes the request line, and with it the ticket.
    quiet = logging.getLogger("codebutler.slack.wire")
    quiet.setLevel(logging.WARNING)
    wire = await connect(
        url,
        create_connection=Wire,
        proxy=None if is_loopback(url) else True,
        open_timeout=timing.open_timeout_s,
        ping_interval=timing.ping_interval_s,
        ping_timeout=timing.ping_timeout_s,
        close_timeout=timing.close_timeout_s,
        max_size=MAX_FRAME_BYTES,
        max_queue=64,
        compression=None,  # a frame is small: there is nothing to gain, and each would take longer
        logger=quiet,
    )
    if not isinstance(wire, Wire):
        raise TypeError("the library made another kind of connection")
    return wire


class Link:
    """A connection at work. ``ended`` tells, once, why it has to be replaced; it may go on serving after."""

    def __init__(
        self, wire: Wire, handler: Handler, clock: Clock, timing: SocketTiming, tally: Tally
    ) -> None:
        self._wire = wire
        self._handler = handler
        self._clock = clock
        self._timing = timing
        self._tally = tally
        self._tasks: set[asyncio.Task[None]] = set()
        self._handling: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self.opened_s = clock.monotonic()
        self.app_connections = 0
        self.hello = asyncio.Event()
        self.closed = asyncio.Event()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Begin to read and to watch for silence."""
        self._reader = self._spawn(self._read(), "slack-socket-read", self._tasks)
        self._spawn(self._watch(), "slack-socket-watch", self._tasks)

    async def first_word(self) -> str | None:
        """None once Slack has said hello; else why this connection is of no use."""
        hello = asyncio.ensure_future(self.hello.wait())
        waiting: set[asyncio.Future[Any]] = {hello, self.ended}
        try:
            async with asyncio.timeout(self._timing.hello_timeout_s):
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            return NO_HELLO
        finally:
            hello.cancel()
        return None if self.hello.is_set() else self.ended.result()

    def abort(self) -> None:
        """Drop the connection without a word."""
        self._wire.transport.abort()

    async def retire(self) -> None:
        """Go on serving until Slack closes the connection, or close it after ``drain_s``."""
        await wait_for(self._clock, self.closed, self._timing.drain_s)
        await asyncio.gather(*self._handling, return_exceptions=True)
        await self._wire.close()

    async def finish(self) -> None:
        """Take nothing more, let the handlers in hand finish and acknowledge, close."""
        if self._reader is not None:
            await cancel({self._reader})
        if self._handling:
            await asyncio.wait(self._handling, timeout=self._timing.stop_grace_s)
        await cancel(self._handling | self._tasks)
        await self._wire.close()

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._wire.recv(decode=False))
        except ConnectionClosed:
            log.debug("a connection to Slack has ended")
        finally:
            self.closed.set()
            self._end(CLOSED)

    def _take(self, raw: bytes) -> None:
        frame = parse_frame(raw)
        if frame is None:
            self._tally.dropped_frames += 1
            log.warning("dropped an unreadable frame of %d bytes from Slack", len(raw))
            return
        if isinstance(frame, Disconnect):
            self._end(frame.reason or "disconnect")
            return
        self._tally.last_event_s = self._clock.monotonic()
        if isinstance(frame, Hello):
            self.app_connections = frame.connections
            self.hello.set()
        else:
            # Tasks start in the order of their creation, so handlers see the envelopes in order.
            self._spawn(self._handle(frame), "slack-envelope", self._handling)

    async def _handle(self, envelope: Envelope) -> None:
        try:
            payload = await self._handler(envelope)
            ack = encode_ack(envelope, payload)
        except Exception:  # no envelope may stop the socket
            self._tally.failed_handlers += 1
            log.exception("an event could not be taken in; Slack will send it again")
            return
        try:
            reached("ack.before")
            await self._wire.send(ack, text=True)
            reached("ack.after")
        except ConnectionClosed:
            self._tally.lost_acks += 1
            log.debug("a connection ended before an acknowledgement; the event will come again")

    async def _watch(self) -> None:
        while not self.closed.is_set():
            self._wire.heard = False
            await wait_for(self._clock, self.closed, self._timing.silence_s)
            if not self._wire.heard and not self.closed.is_set():
                log.warning("Slack has been silent for %g s: reconnecting", self._timing.silence_s)
                self.abort()
                return

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    def _spawn(
        self, work: Coroutine[Any, Any, None], name: str, group: set[asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        group.add(task)
        task.add_done_callback(group.discard)
        return task


async def cancel(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel ``tasks`` and wait until they are gone."""
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
