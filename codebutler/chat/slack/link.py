"""One Socket Mode connection: reads frames, hands their events to the intake, acknowledges, notices silence, drains.

The library passes a message to a waiting task, and flushes each send before it continues: each is one more
round of the loop before the acknowledgement that Slack waits for. ``Wire`` does neither.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.connection import broadcast
from websockets.frames import DATA_OPCODES
from websockets.frames import Frame as WireFrame
from websockets.http11 import Request, Response
from websockets.protocol import State

from codebutler.chat.payload import Ignored, PayloadError
from codebutler.chat.port import Identity
from codebutler.chat.slack.forms import form_refused, in_vain, is_at_home, is_form
from codebutler.chat.slack.payloads import HomeOpened, Notice, parse_envelope
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ProtocolError
from codebutler.domain.model import ButtonClicked
from codebutler.intake.intake import Intake, Outcome
from codebutler.platform.http import is_local_url
from codebutler.platform.kill_points import reached
from codebutler.platform.tasks import Tasks, abort, wait_for

CLOSED = "closed"
NO_HELLO = "no hello"
_NOT_TAKEN: Mapping[Outcome, str] = {
    "refused": "You are not authorized to decide this.",
    "ignored": "This channel is no longer served: nothing was decided.",
}
"""For the author of a form; their text stays in it."""
MAX_MESSAGE_BYTES = 16 * 2**20
MAX_FRAGMENTS = 4096

log = logging.getLogger("codebutler.chat.slack.socket")


class Tally(Struct):
    """Counters shared by all connections of one client."""

    last_event_s: float | None = None
    dropped_frames: int = 0
    failed_handlers: int = 0
    lost_acks: int = 0


Handler = Callable[["SocketEnvelope"], Awaitable[dict[str, Any] | None]]


class SocketLink:
    """A working connection. ``ended`` says, once, why it has to be replaced; it may keep serving after that."""

    def __init__(
        self, wire: Wire, handler: Handler, clock: Clock, timing: SocketTiming, tally: Tally
    ) -> None:
        self._wire = wire
        self._handler = handler
        self._clock = clock
        self._timing = timing
        self._tally = tally
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._handling = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self.opened_s = clock.monotonic()
        self.app_connections = 0
        self.hello = asyncio.Event()
        self.closed = asyncio.Event()
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Start to listen and to watch for silence."""
        self._tasks.start(self._follow(), name="slack-socket-end")
        self._tasks.start(self._watch(), name="slack-socket-watch")
        self._wire.listen(self._take)

    async def first_word(self) -> str | None:
        """None once Slack has said hello; else why this connection is unusable."""
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
        """Drop the connection without closing it properly."""
        abort(self._wire.transport)

    async def retire(self) -> None:
        """Keep serving until Slack closes the connection, or close it after ``drain_s``."""
        await wait_for(self._clock, self.closed, self._timing.drain_s)
        await self._handling.join()
        await self._wire.close()

    async def finish(self) -> None:
        """Take nothing more, let running handlers finish and acknowledge, close."""
        self._wire.listen(_let_pass)
        await self._handling.close(self._timing.stop_grace_s)
        await self._tasks.close(0)
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
        if isinstance(frame, DisconnectFrame):
            self._end(frame.reason or "disconnect")
            return
        self._tally.last_event_s = self._clock.monotonic()
        if isinstance(frame, HelloFrame):
            self.app_connections = frame.connections
            self.hello.set()
        else:
            # Tasks start in the order of their creation, so handlers see the envelopes in order.
            self._handling.start(self._handle(frame), name="slack-envelope")

    async def _handle(self, envelope: SocketEnvelope) -> None:
        try:
            payload = await self._handler(envelope)
            ack: dict[str, Any] = {"envelope_id": envelope.envelope_id}
            if payload is not None and envelope.accepts_response_payload:
                ack["payload"] = payload
            message = msgspec.json.encode(ack)
        except Exception:  # no envelope may stop the socket
            self._tally.failed_handlers += 1
            log.exception("could not store an event; Slack will send it again")
            return
        reached("ack.before")
        if self._wire.state is State.OPEN:
            broadcast((self._wire,), message, text=True)  # without waiting for it to leave
            reached("ack.after")
        else:
            self._tally.lost_acks += 1
            log.debug("a connection ended before an acknowledgement; Slack will send the event again")

    async def _watch(self) -> None:
        while not self.closed.is_set():
            self._wire.is_active = False
            await wait_for(self._clock, self.closed, self._timing.silence_s)
            if not self._wire.is_active and not self.closed.is_set():
                log.warning("Slack has been silent for %g s: reconnecting", self._timing.silence_s)
                self.abort()
                return

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)


def _let_pass(_message: bytes) -> None:
    """Unacknowledged envelopes come again, over another connection."""


class EventHandler:
    """The socket's handler. An envelope that cannot be stored raises, so that Slack sends it again."""

    def __init__(self, intake: Intake, identity: Identity, on_notice: Callable[[Notice], None]) -> None:
        self._intake = intake
        self._identity = identity
        self._on_notice = on_notice

    async def handle(self, envelope: SocketEnvelope) -> dict[str, Any] | None:
        """Returns when the event is on disk or is not for us; a malformed one is logged and dropped."""
        try:
            event = parse_envelope(envelope.type, envelope.payload, self._identity)
        except (PayloadError, ProtocolError) as error:
            log.warning("dropped an unreadable %s payload: %s", envelope.type, error)
            return None
        if isinstance(event, Notice):
            self._on_notice(event)
            return None
        if isinstance(event, Ignored):
            log.debug("ignored: %s", event.reason)
            return None
        outcome = await self._intake.accept(event, missed=envelope.is_retry)
        if (why := _NOT_TAKEN.get(outcome)) and is_form(envelope.payload):
            return form_refused(why)
        if outcome == "ignored" and isinstance(event, ButtonClicked):
            self._on_notice(in_vain(event, envelope.payload))
        elif isinstance(event, ButtonClicked) and is_at_home(envelope.payload):
            # Their request may have been decided long ago: show them the current state.
            self._on_notice(HomeOpened(event.user))
        return None


class HelloFrame(Struct, frozen=True):
    """The connection is ready. ``connections`` counts every live connection of the app, ours included."""

    connections: int


class DisconnectFrame(Struct, frozen=True):
    """Slack will close this connection. ``reason``: warning, refresh_requested, link_disabled, …"""

    reason: str


class SocketEnvelope(Struct, frozen=True):
    """One event, click or slash command; answered with its ``envelope_id`` within about 3 s."""

    envelope_id: str
    type: str
    payload: dict[str, Any]
    accepts_response_payload: bool = False
    is_retry: bool = False


Frame = HelloFrame | DisconnectFrame | SocketEnvelope


def parse_frame(raw: bytes) -> Frame | None:
    """The frame in ``raw``; None if it is not one (the caller counts and drops it)."""
    try:
        try:
            data = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # More lenient, and several times as slow: one broken character must not lose the whole event.
            data = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    match data:
        case {"type": "hello"}:
            count = data.get("num_connections")
            return HelloFrame(count if type(count) is int else 0)
        case {"type": "disconnect"}:
            return DisconnectFrame(str(data.get("reason") or ""))
        case {"type": str(kind), "envelope_id": str(envelope_id), "payload": dict(payload)} if envelope_id:
            attempt = data.get("retry_attempt")
            return SocketEnvelope(
                envelope_id=envelope_id,
                type=kind,
                payload=payload,
                # Only this field decides: the same type of envelope comes with and without it.
                accepts_response_payload=data.get("accepts_response_payload") is True,
                is_retry=type(attempt) is int and attempt > 0,
            )
    return None


class SocketTiming(Struct, frozen=True, kw_only=True):
    """All in seconds. A half-open connection is found after ping_interval + ping_timeout + close_timeout at
    the latest, and by the silence watchdog if the pings themselves are stuck. Slack tells only a new
    connection how many the app has: one is made every ``count_s``, and after ``recount_s`` if there was one
    too many."""

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
    count_s: float = 180.0
    recount_s: float = 60.0


class Wire(ClientConnection):
    """``listen``, then every message is handled in the step of the loop that reads it, in order.

    ``is_active`` is set by any bytes: pings and pongs are signs of life, too.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.is_active = False
        self._parts: list[bytes] = []
        self._early: list[bytes] = []
        self._on_message: Callable[[bytes], None] = self._early.append

    def listen(self, on_message: Callable[[bytes], None]) -> None:
        """``on_message``, which must not raise, gets everything received so far and every message from now on."""
        self._on_message = on_message
        early, self._early = self._early, []
        for message in early:
            on_message(message)

    def data_received(self, data: bytes) -> None:
        """Note that bytes came; the library handles them."""
        self.is_active = True
        super().data_received(data)

    def process_event(self, event: WireFrame | Request | Response) -> None:
        """Hand a message on at once; the library would queue it for ``recv``. The sizes were checked before."""
        if not isinstance(event, WireFrame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
        elif event.fin and not self._parts:
            self._on_message(bytes(event.data))
        elif len(self._parts) >= MAX_FRAGMENTS:
            abort(self.transport)
        else:
            self._parts.append(bytes(event.data))
            if event.fin:
                parts, self._parts = self._parts, []
                self._on_message(b"".join(parts))


async def open_wire(url: str, timing: SocketTiming) -> Wire:
    """Connect. Raises OSError, TimeoutError or WebSocketException, whose text may hold the secret URL."""
    # A logger of its own: at DEBUG the library writes the request line, and with it the ticket.
    quiet = logging.getLogger("codebutler.chat.slack.link")
    quiet.setLevel(logging.WARNING)
    wire = await connect(
        url,
        create_connection=Wire,
        proxy=None if is_local_url(url) else True,
        open_timeout=timing.open_timeout_s,
        ping_interval=timing.ping_interval_s,
        ping_timeout=timing.ping_timeout_s,
        close_timeout=timing.close_timeout_s,
        max_size=MAX_MESSAGE_BYTES,
        compression=None,  # a message is small: there is nothing to gain, and each would take longer
        logger=quiet,
    )
    if not isinstance(wire, Wire):
        raise TypeError("the library made another kind of connection")
    return wire
