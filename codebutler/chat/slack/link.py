"""One Socket Mode connection: reads frames, runs the handler, acknowledges, notices silence, drains."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from codebutler.chat.slack.wire import (
    Disconnect,
    Envelope,
    Hello,
    SocketTiming,
    Wire,
    encode_ack,
    parse_frame,
)
from codebutler.domain.clock import Clock
from codebutler.platform.killpoints import reached
from codebutler.platform.tasks import abort, cancel, wait_for

Handler = Callable[[Envelope], Awaitable[dict[str, Any] | None]]

CLOSED = "closed"
NO_HELLO = "no hello"

log = logging.getLogger("codebutler.chat.slack.socket")


@dataclass(slots=True)
class Tally:
    """What all connections of one client have met together."""

    last_event_s: float | None = None
    dropped_frames: int = 0
    failed_handlers: int = 0
    lost_acks: int = 0


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
        self.opened_s = clock.monotonic()
        self.app_connections = 0
        self.hello = asyncio.Event()
        self.closed = asyncio.Event()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Begin to listen and to watch for silence."""
        self._spawn(self._follow(), "slack-socket-end", self._tasks)
        self._spawn(self._watch(), "slack-socket-watch", self._tasks)
        self._wire.listen(self._take)

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
        abort(self._wire.transport)

    async def retire(self) -> None:
        """Go on serving until Slack closes the connection, or close it after ``drain_s``."""
        await wait_for(self._clock, self.closed, self._timing.drain_s)
        await asyncio.gather(*self._handling, return_exceptions=True)
        await self._wire.close()

    async def finish(self) -> None:
        """Take nothing more, let the handlers in hand finish and acknowledge, close."""
        self._wire.listen(_let_pass)
        if self._handling:
            await asyncio.wait(self._handling, timeout=self._timing.stop_grace_s)
        await cancel(self._handling | self._tasks)
        await self._wire.close()

    async def _follow(self) -> None:
        try:
            await self._wire.wait_closed()
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
        reached("ack.before")
        if self._wire.say(ack):
            reached("ack.after")
        else:
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


def _let_pass(_message: bytes) -> None:
    """What is not acknowledged comes again, over another connection."""
