"""Socket Mode: delivers each envelope to exactly one of the app's connections, until one acknowledges it. Slack: an
envelope goes to any one connection; without an ack within 3 s an event is retried almost at once, after one minute
and after five, even if nobody was connected; commands and clicks are sent once."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine
from functools import partial

import msgspec
from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.platform.tasks import Tasks, settled_within
from codebutler.workspace.connections import Connections, Reason, Signal
from codebutler.workspace.state import Json, MethodError

log = logging.getLogger("codebutler.workspace")


class Timing(Struct, frozen=True, kw_only=True):
    """The hub's timeouts; Slack's own values unless scaled down for a test."""

    ack_s: float = 3.0
    retries_s: tuple[float, ...] = (1.0, 60.0, 300.0)
    refresh_grace_s: float = 10.0

    def scaled(self, factor: float) -> Timing:
        """The same retry schedule and grace periods, multiplied by ``factor``; the ack deadline stays."""
        return Timing(
            ack_s=self.ack_s,
            retries_s=tuple(wait_s * factor for wait_s in self.retries_s),
            refresh_grace_s=self.refresh_grace_s * factor,
        )


class Counts(Struct):
    """Counts of envelopes so far. ``lost`` events were never acknowledged."""

    sent: int = 0
    acked: int = 0
    retried: int = 0
    lost: int = 0


class Hub:
    """The app's end of Socket Mode. ``signal`` is notified of every connection, ack and loss. ``on_ack`` is for
    measurements: it gets the seconds between sending an envelope and its ack."""

    def __init__(self, clock: Clock, app_id: str, timing: Timing, signal: Signal) -> None:
        self.counts = Counts()
        self.on_ack: Callable[[float], None] | None = None
        self._clock = clock
        self._timing = timing
        self._signal = signal
        self.connections = Connections(app_id, signal, self._on_frame)
        """The app's open sockets; each envelope goes to one of them."""
        self._pending_acks: dict[str, asyncio.Future[Json]] = {}
        self._sent_s: dict[str, float] = {}
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))

    @property
    def pending(self) -> int:
        """Events and commands that are neither acknowledged nor lost."""
        return len(self._tasks)

    def deliver(self, kind: str, payload: Json) -> None:
        """Send an event, at once if the app is connected, and retry until it is acknowledged or lost."""
        first = self._attempt(kind, payload, retry=0)
        self._spawn(self._deliver_until_acked(kind, payload, first), "workspace-delivery")

    async def ask(self, kind: str, payload: Json, *, accepts_response: bool) -> Json:
        """Send a command or click once and return the ack's payload ({} if it has none). Raises MethodError
        operation_timeout if nobody acknowledges it in time."""
        sent = self._attempt(kind, payload, accepts_response=accepts_response)
        if sent is None:
            raise MethodError("operation_timeout")
        answer = await self._wait_for_ack(*sent)
        if answer is None:
            raise MethodError("operation_timeout")
        return answer

    def call_later(self, wait_s: float, callback: Callable[[], None]) -> None:
        """Do something later, unless the workspace ends first."""
        self._spawn(self._call_after(wait_s, callback), "workspace-later")

    async def _call_after(self, wait_s: float, callback: Callable[[], None]) -> None:
        await self._clock.sleep(wait_s)
        callback()

    def disconnect(self, reason: Reason) -> None:
        """Send a disconnect message to every connection, as Slack does before closing."""
        wait_s = self._timing.refresh_grace_s if reason == "refresh_requested" else 0.0
        for connection in self.connections.disconnect(reason):
            self.call_later(wait_s, partial(connection.outgoing.put_nowait, None))

    async def close(self) -> None:
        """Close every connection and drop what is pending."""
        self.connections.close()
        for future in self._pending_acks.values():
            future.cancel()
        await self._tasks.close(0)

    def _attempt(
        self, kind: str, payload: Json, *, retry: int | None = None, accepts_response: bool = False
    ) -> tuple[str, asyncio.Future[Json]] | None:
        connection = self.connections.next_connection()
        if connection is None:
            return None
        envelope_id = str(uuid.uuid4())
        envelope: Json = {
            "envelope_id": envelope_id,
            "type": kind,
            "accepts_response_payload": accepts_response,
            "payload": payload,
        }
        if retry is not None:
            envelope.update(retry_attempt=retry, retry_reason="timeout" if retry else "")
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._pending_acks[envelope_id] = future
        self._sent_s[envelope_id] = self._clock.monotonic()
        self.counts.sent += 1
        connection.send(envelope)
        return envelope_id, future

    async def _deliver_until_acked(
        self, kind: str, payload: Json, first: tuple[str, asyncio.Future[Json]] | None
    ) -> None:
        if first and await self._wait_for_ack(*first) is not None:
            return
        for retry, wait_s in enumerate(self._timing.retries_s, start=1):
            await self._clock.sleep(wait_s)
            self.counts.retried += 1
            sent = self._attempt(kind, payload, retry=retry)
            if sent and await self._wait_for_ack(*sent) is not None:
                return
        self.counts.lost += 1

    async def _wait_for_ack(self, envelope_id: str, future: asyncio.Future[Json]) -> Json | None:
        try:
            await settled_within(self._clock, future, self._timing.ack_s)
        finally:
            self._pending_acks.pop(envelope_id, None)
            self._sent_s.pop(envelope_id, None)
        return future.result() if future.done() and not future.cancelled() else None

    def _on_frame(self, text: str) -> None:
        try:
            frame = msgspec.json.decode(text)
        except msgspec.DecodeError:
            return
        if not isinstance(frame, dict):
            return
        future = self._pending_acks.get(str(frame.get("envelope_id")))
        if future is None or future.done():
            return
        payload = frame.get("payload")
        future.set_result(payload if isinstance(payload, dict) else {})
        self.counts.acked += 1
        if self.on_ack is not None:
            self.on_ack(self._clock.monotonic() - self._sent_s[str(frame["envelope_id"])])
        self._signal.notify()

    def _spawn(self, coroutine: Coroutine[object, object, None], name: str) -> None:
        self._tasks.start(coroutine, name=name).add_done_callback(lambda _: self._signal.notify())
