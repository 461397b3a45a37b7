"""One worker process from its start to its death: handshake, messages, heartbeats, the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable

from msgspec import UNSET, Struct

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import CodeButlerError, FrameTooLargeError, ProtocolError
from codebutler.domain.refs import NOWHERE
from codebutler.platform.kill_points import reached
from codebutler.platform.tasks import first_of
from codebutler.protocol.conversations import FoundTold, RunChanges, ThreadTold, Traced
from codebutler.protocol.messages import (
    PROTOCOL_VERSION,
    Audit,
    Budget,
    Configure,
    Deliver,
    Doing,
    Fetch,
    FetchThread,
    Goodbye,
    Heartbeat,
    Hello,
    Live,
    Log,
    LookAtPulls,
    Overview,
    Ready,
    Send,
    Sent,
    Shutdown,
    StopReason,
    StopTurns,
    Stored,
    ToParent,
    TotalUse,
    TurnEnded,
    TurnStarted,
    UploadPiece,
)
from codebutler.supervisor.lifecycle import Vitals, WorkerState
from codebutler.supervisor.limits import (
    BYTES_BURST,
    BYTES_PER_S,
    ERROR_CHARS,
    FRAMES_PER_S,
    PRINTED_PER_S,
    UNREAD_BYTES,
    Reports,
    TokenBucket,
    shorten,
)
from codebutler.supervisor.port import Shared, WorkerLink
from codebutler.supervisor.queues import Deliveries, Fetches, Questions, Sends

LAST_WORDS_S = 1.0
BURIAL_S = 5.0
STALL_S = 1.0
MOST_ENDINGS = 100


class WorkerExit(Struct, frozen=True):
    """How a process ended. ``exit_code`` None: it never started, since the machine lacked resources. ``stop_reason``:
    why it was asked to end; ``why``: its fault or its last error."""

    exit_code: int | None
    lived_s: float
    stop_reason: StopReason | None = None
    why: str = ""


class SessionContext(Struct, frozen=True):
    """What outlives a process: its repository, what to deliver, what is being sent, what it is asked, its reports.

    ``moved`` is called when the process is ready ("running") and when it was asked to end ("stopping").
    """

    repo: RepoSettings
    deliveries: Deliveries
    sends: Sends
    questions: Questions
    reports: Reports
    moved: Callable[[WorkerState], None]


class WorkerSession:
    """Talks to one process and watches it. Call ``run`` once. ``settled`` is set when the process is ready or never
    will be."""

    def __init__(self, link: WorkerLink, context: SessionContext, shared: Shared) -> None:
        self.ready = asyncio.Event()
        self.settled = asyncio.Event()
        self.load = Heartbeat()
        self._has_load = False
        self._repo = context.repo
        self._link = link
        self._deliveries = context.deliveries
        self._sends = context.sends
        self._questions = context.questions
        self._fetches = Fetches(shared.services, context.reports, link.send, link.drain)
        self._endings: asyncio.Queue[TurnEnded] = asyncio.Queue(MOST_ENDINGS)
        self._moved = context.moved
        self._shared = shared
        self._greeted = False
        self._total: TotalUse | None = None
        self._eof = asyncio.Event()
        self._quiet = asyncio.Event()
        self._why = ""
        now_s = shared.clock.monotonic()
        self._vitals = Vitals(shared.timing, context.repo.config.worker.idle_sleep_minutes * 60, now_s)
        self._reports = context.reports
        self._kick = asyncio.Event()
        self._frames = TokenBucket(FRAMES_PER_S, FRAMES_PER_S, now_s)
        self._bytes = TokenBucket(BYTES_PER_S, BYTES_BURST, now_s)
        self._lines = TokenBucket(PRINTED_PER_S, PRINTED_PER_S, now_s)
        self._is_unread = False

    @property
    def pid(self) -> int:
        """The worker's process ID."""
        return self._link.pid

    async def run(self) -> WorkerExit:
        """Returns when the process is dead and all its messages have been handled. Cancelling it kills the process."""
        parts = {
            "receive": self._receive(),
            "printed": self._printed(),
            "deliver": self._deliver(),
            "watch": self._watch(),
            "endings": self._tell_endings(),
        }
        tasks = [
            asyncio.create_task(self._guard(part), name=f"worker:{self._repo.name}:{name}")
            for name, part in parts.items()
        ]
        self._shared.places.entered(self, self._vitals, self._kick.set)
        try:
            code = await self._link.wait_dead()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._eof.wait()
                    await self._quiet.wait()
        finally:
            self.settled.set()
            self._sends.answer_to(None)
            self._questions.answer_to(None)
            self._link.kill(signal.SIGKILL)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, self._fetches.close(), return_exceptions=True)
            self._link.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BURIAL_S):
                    await self._link.wait_dead()
        last_error = self._reports.close()
        lived_s = self._vitals.lived_s(self._shared.clock.monotonic())
        return WorkerExit(code, lived_s, self._vitals.stop_reason, self._why or last_error)

    def shutdown(self, reason: StopReason, grace_s: float) -> None:
        """Ask the process to finish within ``grace_s`` seconds; then it is killed. 0 kills it at once.

        May be called again: the earlier deadline counts.
        """
        if self._vitals.stop_reason is None:
            self._moved("stopping")
        self._vitals.stop(reason, self._shared.clock.monotonic() + grace_s)
        if grace_s <= 0:
            self._link.kill(signal.SIGKILL)
        else:
            self._link.send(Shutdown(reason=reason, grace_s=grace_s))
        self._kick.set()

    def tell(self, news: StopTurns | LookAtPulls) -> None:
        """Tell the process, if it still listens."""
        self._link.send(news)

    def tell_total(self) -> None:
        """Tell the process what the other repositories use, if that has changed."""
        total = self._shared.services.total(self._repo)
        if self._greeted and total is not None and total != self._total:
            self._total = total
            self._link.send(total)

    async def _guard(self, part: Awaitable[None]) -> None:
        """Anything that goes wrong with one worker ends that worker and nothing else."""
        try:
            await part
        except CodeButlerError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - a fault in one worker's supervision stays with it
            self._fail(f"its supervision failed: {type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        self._why = self._why or shorten(why, ERROR_CHARS)
        self._reports.note("ERR", self._why)
        self._link.kill(signal.SIGKILL)

    # Messages from the worker

    async def _receive(self) -> None:
        clock = self._shared.clock
        try:
            async for message in self._link.messages(self._admit):
                self._vitals.seen(clock.monotonic())
                if self._greeted:
                    await self._take(message)
                else:
                    self._greet(message)
        finally:
            self._eof.set()
        await clock.sleep(self._shared.timing.eof_s)
        self._link.kill(signal.SIGKILL)

    async def _admit(self, size_bytes: int) -> None:
        """Before the next message is read: limits how much the worker may send, and waits for it to read what we sent.
        Raises ProtocolError."""
        clock = self._shared.clock
        now_s = clock.monotonic()
        if wait_s := max(self._frames.owe(now_s), self._bytes.owe(now_s, size_bytes)):
            await clock.sleep(wait_s)
        if self._link.unread_bytes > UNREAD_BYTES:
            await self._wait_until_read()

    async def _wait_until_read(self) -> None:
        self._is_unread = True
        longest_s = self._shared.timing.silence_s
        await first_of(self._link.drain(), self._shared.clock.sleep(longest_s))
        if self._link.unread_bytes > UNREAD_BYTES:
            raise ProtocolError(f"the worker has read nothing for {longest_s:g} s")
        self._is_unread = False

    async def _printed(self) -> None:
        try:
            async for line in self._link.printed():
                if wait_s := self._lines.owe(self._shared.clock.monotonic()):
                    await self._shared.clock.sleep(wait_s)
                self._reports.blame(line)
                self._reports.record("ERR", line)
        finally:
            self._quiet.set()

    async def _take(self, message: ToParent) -> None:
        match message:
            case Heartbeat():
                self._update_load(message)
            case Stored(seq=seq):
                await self._stored(seq)
            case Budget() | Doing() | Live() | Overview() | Traced() | TurnStarted():
                self._shared.services.show(self._repo, message)
            case Log(tag=tag, text=text):
                if tag == "ERR":
                    self._reports.blame(text)
                self._reports.record(tag, text)
            case Audit():
                self._reports.audit(self._repo, message)
            case Send():
                self._vitals.active_s = self._shared.clock.monotonic()
                await self._sends.start(self._repo, message)
            case UploadPiece():
                await self._sends.piece(message)
            case TurnEnded():
                with contextlib.suppress(asyncio.QueueFull):
                    # Unanswered endings are sent again after a restart.
                    self._endings.put_nowait(message)
            case _:
                self._take_rare(message)

    async def _tell_endings(self) -> None:
        """One by one: a full disk blocks the next ending, and nothing else."""
        while True:
            ending = await self._endings.get()
            await self._shared.services.turn_ended(self._repo, ending)
            self._link.send(Sent(op_id=ending.op_id, ref=NOWHERE))

    def _update_load(self, load: Heartbeat) -> None:
        self.load = load
        # Its first heartbeat includes work resumed from before a restart.
        if not self._has_load or self._shared.places.wanted:
            self._has_load = True
            self._kick.set()

    def _take_rare(self, message: ToParent) -> None:
        match message:
            case Hello():
                raise ProtocolError("the worker said hello twice")
            case Ready():
                self._become_ready()
            case Goodbye(reason=reason):
                self._reports.blame(reason)
            case Fetch() | FetchThread():
                self._fetches.start(self._repo, message)
            case RunChanges() | ThreadTold() | FoundTold():
                self._vitals.active_s = self._shared.clock.monotonic()
                self._questions.answered(message)

    def _greet(self, message: ToParent) -> None:
        if not isinstance(message, Hello) or message.pid != self._link.pid:
            raise ProtocolError("the worker did not begin with its own hello")
        if message.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the worker speaks protocol {message.version}, this supervisor {PROTOCOL_VERSION}: "
                "restart the supervisor"
            )
        self._greeted = True
        self._total = self._shared.services.total(self._repo)
        self._link.send(Configure(settings=self._repo, total=self._total))
        # Not earlier: the settings must be the first message a worker gets.
        self._sends.answer_to(self._link.send)

    def _become_ready(self) -> None:
        if not self.ready.is_set():
            self._vitals.ready(self._shared.clock.monotonic())
            self.ready.set()
            self.settled.set()
            self._kick.set()
            if self._vitals.stop_reason is None:
                self._moved("running")
                self._questions.answer_to(self._link.send)

    async def _stored(self, seq: int) -> None:
        if not self._deliveries.settle(seq):
            raise ProtocolError(f"the worker claims to have stored event {seq}, which it was not sent")
        self._vitals.active_s = self._shared.clock.monotonic()
        reached("settle.before")
        try:
            await self._shared.services.settle(seq)
        except CodeButlerError as error:
            # The journal delivers it again at the next start, and the worker recognizes it by its key.
            self._reports.note("WRN", f"event {seq} stays in the journal: {error}")
        reached("settle.after")

    # Messages to the worker

    async def _deliver(self) -> None:
        self._deliveries.again()
        await self.ready.wait()
        while self._vitals.stop_reason is None:
            entry = await self._deliveries.next()
            if self._vitals.stop_reason is not None:
                return  # it counts as sent and not stored: the next process gets it
            self._vitals.active_s = self._shared.clock.monotonic()
            try:
                reached("deliver.before")
                trace = entry.trace or UNSET
                self._link.send(Deliver(seq=entry.seq, event=entry.event, request=entry.request, trace=trace))
            except FrameTooLargeError as error:
                self._reports.note("ERR", f"event {entry.seq} cannot be delivered and is dropped: {error}")
                await self._stored(entry.seq)
            if self._link.unread_bytes:
                await self._link.drain()
            reached("deliver.after")

    # Whether the worker is alive

    async def _watch(self) -> None:
        clock, timing = self._shared.clock, self._shared.timing
        while not (
            fault := self._vitals.fault(clock.monotonic(), held_up=self._sends.full or self._is_unread)
        ):
            self._maybe_sleep()
            before_s = clock.monotonic()
            await self._nap(timing.heartbeat_s)
            if clock.monotonic() - before_s > timing.heartbeat_s + STALL_S:
                # We were held up ourselves (a suspended machine): its messages are still unread.
                self._vitals.seen(clock.monotonic())
        self._why = self._why or fault
        self._reports.note("ERR", f"{fault}: killing it")
        self._link.kill(signal.SIGABRT)
        await clock.sleep(timing.abort_s)
        self._link.kill(signal.SIGKILL)

    async def _nap(self, longest_s: float) -> None:
        """Sleep until the next deadline, for ``longest_s`` at most, or until a deadline has changed."""
        now_s = self._shared.clock.monotonic()
        wait_s = min(longest_s, max(0.01, self._vitals.deadline_s() - now_s))
        self._kick.clear()
        await first_of(self._shared.clock.sleep(wait_s), self._kick.wait())

    def _maybe_sleep(self) -> None:
        load = self.load
        busy = any((load.running, load.queued, load.waiting, load.outbox)) or self._deliveries or self._sends
        wanted = self._shared.places.wanted and self._has_load
        now_s, follows = self._shared.clock.monotonic(), bool(load.followed)
        if self._vitals.may_sleep(now_s, busy=bool(busy), wanted=wanted, follows=follows):
            self._shared.places.leaving(self)
            self.shutdown("sleep", self._shared.timing.sleep_grace_s)
