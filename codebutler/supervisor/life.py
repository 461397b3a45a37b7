"""One worker process from its start to its death: handshake, messages, heartbeats, the end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from msgspec import structs

from codebutler.config.schema import RepoSettings
from codebutler.errors import CodeButlerError, FrameTooLargeError, ProtocolError
from codebutler.process.killpoints import reached
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
    LogTag,
    Overview,
    Ready,
    Send,
    Shutdown,
    StopReason,
    StopTurns,
    Stored,
    ToParent,
)
from codebutler.supervisor.deliveries import Deliveries
from codebutler.supervisor.fetches import Fetches
from codebutler.supervisor.kit import Kit
from codebutler.supervisor.limits import (
    AUDIT_BURST,
    AUDIT_FIELD_CHARS,
    AUDITS_PER_S,
    FRAMES_PER_S,
    LogGate,
    TokenBucket,
    shorten,
)
from codebutler.supervisor.port import WorkerLink
from codebutler.supervisor.sends import Sends
from codebutler.supervisor.states import WorkerState
from codebutler.supervisor.waiting import first_of

LAST_WORDS_S = 1.0
BURIAL_S = 5.0
STALL_S = 1.0
ERROR_CHARS = 300
LAST_ERROR_S = 60.0


@dataclass(frozen=True, slots=True)
class Death:
    """How a process ended. ``asked``: what it had been told; ``why``: its fault or its last error."""

    exit_code: int
    lived_s: float
    asked: StopReason | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Duty:
    """What outlives a process: whose worker it is, what is to be delivered, what is being sent.

    ``moved`` is told when the process is ready ("running") and when it was asked to end ("stopping").
    """

    repo: RepoSettings
    deliveries: Deliveries
    sends: Sends
    moved: Callable[[WorkerState], None]


class Life:
    """``run`` once. ``settled`` is set when the process is ready or will never be."""

    def __init__(self, link: WorkerLink, duty: Duty, kit: Kit) -> None:
        self.ready = asyncio.Event()
        self.settled = asyncio.Event()
        self.load = Heartbeat()
        self.asked: StopReason | None = None
        self._repo = duty.repo
        self._link = link
        self._deliveries = duty.deliveries
        self._sends = duty.sends
        self._fetches = Fetches(kit.services, link.send, link.drain)
        self._moved = duty.moved
        self._kit = kit
        self._greeted = False
        self._eof = asyncio.Event()
        self._quiet = asyncio.Event()
        self._why = ""
        self._last_error = ("", 0.0)
        now_s = kit.clock.monotonic()
        self._started_s = self._seen_s = self._active_s = now_s
        self._ready_s: float | None = None
        self._force_s = 0.0
        self._kick = asyncio.Event()
        self._frames = TokenBucket.full(FRAMES_PER_S, FRAMES_PER_S, now_s)
        self._logs = LogGate(now_s)
        self._audits = TokenBucket.full(AUDITS_PER_S, AUDIT_BURST, now_s)

    @property
    def pid(self) -> int:
        return self._link.pid

    async def run(self) -> Death:
        """Returns when the process is dead and everything it said has been heard. Cancelling kills it."""
        parts = {
            "receive": self._receive(),
            "printed": self._printed(),
            "deliver": self._deliver(),
            "watch": self._watch(),
        }
        tasks = [
            asyncio.create_task(self._guard(part), name=f"worker:{self._repo.name}:{name}")
            for name, part in parts.items()
        ]
        try:
            code = await self._link.wait_dead()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._eof.wait()
                    await self._quiet.wait()
        finally:
            self.settled.set()
            self._sends.answer = None
            self._link.kill(signal.SIGKILL)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, self._fetches.close(), return_exceptions=True)
            self._link.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BURIAL_S):
                    await self._link.wait_dead()
        for line in self._logs.flush():
            self._log("WRN", line)
        now_s = self._kit.clock.monotonic()
        text, at_s = self._last_error
        lived_s = 0.0 if self._ready_s is None else now_s - self._ready_s
        return Death(code, lived_s, self.asked, self._why or (text if now_s - at_s < LAST_ERROR_S else ""))

    def shutdown(self, reason: StopReason, grace_s: float) -> None:
        """Ask the process to finish within ``grace_s`` seconds; then it is killed. 0 kills at once.

        May be repeated: the sooner end counts.
        """
        force_s = self._kit.clock.monotonic() + grace_s
        self._force_s = force_s if self.asked is None else min(force_s, self._force_s)
        if self.asked is None:
            self._moved("stopping")
        self.asked = reason
        if grace_s <= 0:
            self._link.kill(signal.SIGKILL)
        else:
            self._link.send(Shutdown(reason=reason, grace_s=grace_s))
        self._kick.set()

    def stop_turns(self, user: str) -> None:
        """Ask the process to end every turn."""
        self._link.send(StopTurns(user=user))

    async def _guard(self, part: Awaitable[None]) -> None:
        """Whatever goes wrong with one worker ends that worker and nothing else."""
        try:
            await part
        except CodeButlerError as error:
            self._fail(str(error))
        except Exception as error:  # noqa: BLE001 - a fault in one worker's supervision stays with it
            self._fail(f"its supervision failed: {type(error).__name__}: {error}")

    def _fail(self, why: str) -> None:
        self._why = self._why or shorten(why, ERROR_CHARS)
        self._log("ERR", self._why)
        self._link.kill(signal.SIGKILL)

    def _log(self, tag: LogTag, text: str) -> None:
        self._kit.services.log(self._repo.name, tag, text)

    # What it says

    async def _receive(self) -> None:
        clock = self._kit.clock
        try:
            async for message in self._link.messages():
                if not self._frames.take(clock.monotonic()):
                    await clock.sleep(self._frames.wait_s(clock.monotonic()))
                self._seen_s = clock.monotonic()
                if self._greeted:
                    await self._take(message)
                else:
                    self._greet(message)
        finally:
            self._eof.set()
        await clock.sleep(self._kit.timing.eof_s)
        self._link.kill(signal.SIGKILL)

    async def _printed(self) -> None:
        try:
            async for line in self._link.printed():
                self._record(Log(tag="ERR", text=line))
        finally:
            self._quiet.set()

    async def _take(self, message: ToParent) -> None:
        match message:
            case Hello():
                raise ProtocolError("the worker said hello twice")
            case Ready():
                self._become_ready()
            case Heartbeat():
                self.load = message
            case Stored(seq=seq):
                await self._stored(seq)
            case Send():
                self._active_s = self._kit.clock.monotonic()
                self._sends.start(self._repo, message)
                await self._sends.room()
            case Fetch() | FetchThread():
                self._fetches.start(self._repo, message)
            case Goodbye(reason=reason):
                self._note_error(reason)
            case Doing() | Live() | Log() | Audit() | Overview() | Budget():
                self._note(message)

    def _note(self, message: Doing | Live | Log | Audit | Overview | Budget) -> None:
        match message:
            case Budget():
                self._kit.services.budget(self._repo, message)
            case Overview(turns=turns):
                self._kit.services.overview(self._repo, turns)
            case Doing(thread_ts=thread_ts, text=text):
                self._kit.services.doing(self._repo, thread_ts, text)
            case Live():
                self._kit.services.live(self._repo, message)
            case Log():
                self._record(message)
            case Audit():
                self._audit(message)

    def _greet(self, message: ToParent) -> None:
        if not isinstance(message, Hello) or message.pid != self._link.pid:
            raise ProtocolError("the worker did not begin with its own hello")
        if message.version != PROTOCOL_VERSION:
            raise ProtocolError(
                f"the worker speaks protocol {message.version}, this supervisor {PROTOCOL_VERSION}: "
                "restart the supervisor"
            )
        self._greeted = True
        self._link.send(Configure(settings=self._repo))
        # Not sooner: the settings are the first thing a worker must hear.
        self._sends.answer = self._link.send

    def _become_ready(self) -> None:
        if not self.ready.is_set():
            self._ready_s = self._active_s = self._kit.clock.monotonic()
            self.ready.set()
            self.settled.set()
            self._kick.set()
            if self.asked is None:
                self._moved("running")

    async def _stored(self, seq: int) -> None:
        if not self._deliveries.settle(seq):
            raise ProtocolError(f"the worker claims to have stored event {seq}, which it was not sent")
        self._active_s = self._kit.clock.monotonic()
        reached("settle.before")
        await self._settle(seq)
        reached("settle.after")

    async def _settle(self, seq: int) -> None:
        try:
            await self._kit.services.settle(seq)
        except CodeButlerError as error:
            # The journal offers it again at the next start, and the worker knows it by its key.
            self._log("WRN", f"event {seq} stays in the journal: {error}")

    def _audit(self, record: Audit) -> None:
        if not self._audits.take(self._kit.clock.monotonic()):
            raise ProtocolError("the worker floods the audit log")
        try:
            self._kit.services.audit(self._repo, _shortened(record))
        except OSError as error:
            # Nothing may be executed without a trace: a full disk must not become a way around the audit.
            raise CodeButlerError(f"the audit log cannot be written: {error.strerror}") from error

    def _note_error(self, text: str) -> None:
        self._last_error = (shorten(text, ERROR_CHARS), self._kit.clock.monotonic())

    def _record(self, message: Log) -> None:
        if message.tag == "ERR":
            self._note_error(message.text)
        for text in self._logs.admit(message.text, self._kit.clock.monotonic()):
            self._kit.services.log(self._repo.name, message.tag, text)

    # What it is told

    async def _deliver(self) -> None:
        self._deliveries.again()
        await self.ready.wait()
        while self.asked is None:
            entry = await self._deliveries.next()
            if self.asked is not None:
                return  # it counts as sent and not stored: the next life gets it
            self._active_s = self._kit.clock.monotonic()
            try:
                reached("deliver.before")
                self._link.send(Deliver(seq=entry.seq, event=entry.event, request=entry.request))
            except FrameTooLargeError as error:
                self._log("ERR", f"event {entry.seq} cannot be delivered and is dropped: {error}")
                self._deliveries.settle(entry.seq)
                await self._settle(entry.seq)
            await self._link.drain()
            reached("deliver.after")

    # Whether it lives

    async def _watch(self) -> None:
        clock, timing = self._kit.clock, self._kit.timing
        while (hang := self._hang()) is None:
            self._maybe_sleep()
            before_s = clock.monotonic()
            await self._nap(timing.heartbeat_s)
            if clock.monotonic() - before_s > timing.heartbeat_s + STALL_S:
                # We were held up ourselves (a suspended machine): what it said meanwhile is still unread.
                self._seen_s = clock.monotonic()
        self._why = self._why or hang
        self._log("ERR", f"{hang}: killing it")
        self._link.kill(signal.SIGABRT)
        await clock.sleep(timing.abort_s)
        self._link.kill(signal.SIGKILL)

    async def _nap(self, longest_s: float) -> None:
        """Sleep until the next deadline, for ``longest_s`` at most, or until something moved a deadline."""
        now_s = self._kit.clock.monotonic()
        wait_s = min(longest_s, max(0.01, self._deadline_s() - now_s))
        self._kick.clear()
        await first_of(self._kit.clock.sleep(wait_s), self._kick.wait())

    def _deadline_s(self) -> float:
        timing = self._kit.timing
        if self.asked is not None:
            return self._force_s
        if self._ready_s is None:
            return self._started_s + timing.start_s
        idle_s = self._idle_sleep_s
        return min(self._seen_s + timing.silence_s, self._active_s + idle_s if idle_s else float("inf"))

    def _hang(self) -> str | None:
        """Why it has to be killed, if it has to be."""
        timing, now_s = self._kit.timing, self._kit.clock.monotonic()
        if self.asked is not None:
            return "the worker did not end in time" if now_s >= self._force_s else None
        if self._ready_s is None:
            late = now_s - self._started_s >= timing.start_s
            return f"the worker was not ready after {timing.start_s:g} s" if late else None
        silent = now_s - self._seen_s >= timing.silence_s and not self._sends.full
        return f"the worker has been silent for {timing.silence_s:g} s" if silent else None

    @property
    def _idle_sleep_s(self) -> float:
        return self._repo.config.worker.idle_sleep_minutes * 60

    def _maybe_sleep(self) -> None:
        if self.asked is not None or self._ready_s is None or not self._idle_sleep_s:
            return
        load, now_s = self.load, self._kit.clock.monotonic()
        if any((load.running, load.queued, load.waiting, load.outbox)) or self._deliveries or self._sends:
            self._active_s = now_s
        if now_s - self._active_s >= self._idle_sleep_s:
            self.shutdown("sleep", self._kit.timing.sleep_grace_s)


def _shortened(record: Audit) -> Audit:
    """No worker may fill the disk, or keep us busy redacting, with one record."""
    fields = {name: shorten(getattr(record, name), AUDIT_FIELD_CHARS) for name in ("user", "thread", "kind")}
    decision = shorten(record.decision, AUDIT_FIELD_CHARS)
    return structs.replace(record, text=shorten(record.text), decision=decision, **fields)
