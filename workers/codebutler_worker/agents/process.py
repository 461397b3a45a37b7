"""A turn of an agent that runs as a separate program: receiving, timing, stopping and ending it.

One process per turn: anything that it or its tools left running must not outlive the turn, and the next turn resumes
the session by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.clock import Clock
from codebutler_worker.agents.backend import (
    STOPPED,
    AgentEvent,
    Finished,
    Started,
    TurnRequest,
    Usage,
    Verdict,
)
from codebutler_worker.agents.running import AgentContext, LiveTurn, TurnBackend
from codebutler_worker.agents.session_logs import SessionLog
from codebutler_worker.egress.access import NetworkAccess, new_token, noted
from codebutler_worker.egress.service import ModelService, TokenMeter
from codebutler_worker.sandbox.process import AgentProcess

TICK_S = 1.0
HEIR_TICKS = 3
"""If nothing more comes for so long after the program's end, somebody else holds its output open."""
log = logging.getLogger(__name__)

# What an agent has used: by its own figures, and by what passed the proxy.

UNCOUNTED_TOKENS = 50_000
"""A program may use this many for its own purposes (titles, summaries), which it does not count."""
TOO_MUCH = 2
"""Beyond this multiple of its own figure, something else must have called its model."""


def metered(usage: Usage, gauge: TokenMeter) -> Usage:
    """``usage``, unless far more passed the proxy: then the proxy's figures, with the reported cost scaled up."""
    counted = usage.input_tokens + usage.output_tokens
    passed = gauge.input + gauge.output
    if passed < counted * TOO_MUCH + UNCOUNTED_TOKENS * (counted < UNCOUNTED_TOKENS):
        return usage
    cost = usage.cost_usd
    if cost is not None and counted:
        cost *= passed / counted
    return replace(usage, input_tokens=gauge.input, output_tokens=gauge.output, cost_usd=cost)


class TimeLimits(Struct, frozen=True):
    """How long a turn may take, in seconds; time spent waiting for a person does not count.

    ``start_s``: until the agent gives its first sign of life. ``stall_s``: silence while no tool runs (Claude Code's
    own watchdog takes 300 s). ``stop_s``: how long a turn that was asked to stop has to end by itself.
    ``background_s``: how long the answer waits for background commands, if the agent reports them.
    """

    timeout_s: float
    start_s: float = 60.0
    stall_s: float = 600.0
    stop_s: float = 2.0
    background_s: float = 60.0


H = TypeVar("H")


@dataclass(eq=False, repr=False)
class ProcessTurn(LiveTurn, ABC, Generic[H]):
    """One prompt in a process; ``H`` is what it receives. Its backend yields ``events``, reads ``verdict``, and calls
    ``end``, which leaves no process behind.

    ``messages`` are read one at a time as they are handled: under a flood, they wait in the pipe, not in our memory.
    """

    title = ""
    """What people call the agent."""
    timeout_key = ""
    eof_s = (1.5, 0.3)
    """How long the process has after its stdin is closed: at the end of its turn, and in the middle of it."""
    leaves_work = False
    """Whether the agent has reported that something still runs."""

    request: TurnRequest
    process: AgentProcess
    access: NetworkAccess
    clock: Clock
    limits: TimeLimits
    messages: AsyncIterator[H]
    verdict: Verdict | None = field(default=None, init=False)
    _stopping: bool = field(default=False, init=False)
    _over: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _driving: asyncio.Task[None] | None = field(default=None, init=False)
    """Sends the prompt, if that takes more than a moment."""
    _has_spoken: bool = field(default=False, init=False)
    _checked_s: float = field(default=0.0, init=False)
    _spent_s: float = field(default=0.0, init=False)
    _silent_s: float = field(default=0.0, init=False)
    _dead_ticks: int = field(default=0, init=False)

    @abstractmethod
    async def _begin(self) -> None:
        """Send the prompt, or start sending it."""

    @abstractmethod
    async def _receive(self, message: H | None) -> Sequence[AgentEvent]:
        """The events for a message, None at the end of the stream; sets ``verdict`` if it is the end."""

    @abstractmethod
    async def _poll(self) -> Sequence[AgentEvent]:
        """Events that the agent does not report; called every second."""

    @abstractmethod
    def _due(self) -> Verdict | None:
        """The verdict if the turn must end now although the agent has not ended it; called after every wait."""

    @abstractmethod
    async def _interrupt(self) -> bool:
        """Ask the agent to end its turn; False if it cannot be asked."""

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Run the prompt and yield its events; afterwards ``verdict`` is set."""
        tick_name = f"tick:{self.request.turn_id}"
        receive = asyncio.ensure_future(anext(self.messages, None))
        tick = asyncio.create_task(self.clock.sleep(TICK_S), name=tick_name)
        try:
            if self.verdict is None:
                await self._begin()
            self._checked_s = self.clock.monotonic()
            while self.verdict is None:
                await asyncio.wait({receive, tick}, return_when=asyncio.FIRST_COMPLETED)
                due = self._due()
                if tick.done():
                    tick = asyncio.create_task(self.clock.sleep(TICK_S), name=tick_name)
                    self._dead_ticks += self.process.returncode is not None
                    if self._dead_ticks == HEIR_TICKS:
                        await self.process.stop()
                    for event in await self._poll():
                        yield event
                if receive.done():
                    self._has_spoken, self._silent_s, self._dead_ticks = True, 0.0, 0
                    message = receive.result()
                    receive = asyncio.ensure_future(anext(self.messages, None))
                    for event in await self._receive(message):
                        yield event
                elif due:
                    self.verdict = STOPPED if self._stopping else due
        finally:
            tasks = [receive, tick, *([self._driving] if self._driving else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._over.set()

    def _overdue(self, *, asking: bool, busy: bool) -> Verdict | None:
        """The verdict if the turn has used its time, or has been silent for too long. ``asking``: it waits for a
        person, which does not count. ``busy``: a tool is running, which is silent work."""
        now_s = self.clock.monotonic()
        if not asking:
            self._spent_s += now_s - self._checked_s
            self._silent_s += now_s - self._checked_s
        self._checked_s = now_s
        if self._spent_s >= self.limits.timeout_s:
            minutes = self.limits.timeout_s / 60
            text = f"Stopped after {minutes:g} minutes ({self.timeout_key}): choose Continue to go on."
            return Verdict("timeout", text)
        stall_s = self.limits.stall_s if self._has_spoken else min(self.limits.start_s, self.limits.stall_s)
        if self._silent_s >= stall_s and not busy:
            return Verdict("stalled", f"{self.title} stopped responding: choose Continue to go on.")
        return None

    async def stop(self) -> None:
        """Ask the agent to end its turn; if it does not in time, end the process. Then the stream ends by itself."""
        self._stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.limits.stop_s):
                if await self._interrupt():
                    await self._over.wait()
                    return
        await self.end(at_once=True)

    async def end(self, *, at_once: bool) -> None:
        """End the process: close its stdin, then by force. ``at_once``: in the middle of its turn."""
        await self.process.stop(eof_s=self.eof_s[at_once], term_s=1.0)


T = TypeVar("T", bound=ProcessTurn[Any])


class ProcessBackend(TurnBackend[T]):
    """Starts a process for each turn; the process may start while other preparations are still running. It reaches the
    model's ``service``, or ``hosts`` if it has its own login."""

    waits_until_ready = True

    def __init__(
        self,
        context: AgentContext,
        limits: TimeLimits,
        service: ModelService | None = None,
        hosts: tuple[str, ...] = (),
    ) -> None:
        super().__init__(context.clock, context.logs)
        self._context = context
        self._limits = limits
        self._service = service
        self._hosts = () if service else hosts

    @abstractmethod
    async def _open(
        self,
        request: TurnRequest,
        record: SessionLog,
        access: NetworkAccess,
        service: ModelService | None,
        *,
        fresh: bool,
    ) -> T:
        """A process for the turn, with its token for ``service``. ``fresh``: its earlier session is lost. Raises
        CodeButlerError if none can be started."""

    @abstractmethod
    async def _finished(self, turn: T) -> Finished:
        """The result of the turn, which has its verdict; "session_lost" only if it was to resume one."""

    async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        """Run the turn in its session; if that one is lost, once more in a new one."""
        turn_id, request, finished = turn.turn_id, turn, None
        while finished is None or finished.reason == "session_lost":
            if finished is not None:
                log.warning("the session of %s cannot be resumed: starting a new one", turn.conversation)
                request = replace(turn, session_id=None, cost_before_usd=0.0)
            if request.session_id:
                self._owned[turn_id].add(request.session_id)
            service = dataclasses.replace(self._service, token=new_token()) if self._service else None
            access = await self._context.network_policy.open(request.workdir, service, self._hosts)
            live = None
            try:
                live = await self._open(request, record, access, service, fresh=request is not turn)
                if turn_id in self._stopped:
                    live.verdict = STOPPED
                self._live[turn_id] = live
                async with aclosing(live.events()) as events:
                    async for event in events:
                        if isinstance(event, Started) and event.session_id:
                            self._owned[turn_id].add(event.session_id)
                        yield metered(event, access.gauge) if isinstance(event, Usage) else event
                self._live[turn_id] = None
                # The answer does not wait for the process; a consumer that reads to the end does.
                finished = await self._finished(live)
                if finished.reason != "session_lost":
                    text = finished.text
                    if finished.ok and access.refused:
                        text = noted(text, access.refused)
                    yield replace(finished, text=text, usage=metered(finished.usage, access.gauge))
            finally:
                self._live[turn_id] = None
                await asyncio.shield(self._end(turn_id, self._ended(turn_id, live, access)))

    async def _ended(self, turn_id: str, turn: T | None, access: NetworkAccess) -> None:
        """End the turn's process, its network access, and its ownership of its sessions."""
        try:
            if turn is not None:
                done = turn.verdict is not None and turn.verdict.reason in ("done", "max_turns")
                await turn.end(at_once=turn.leaves_work or not done)
                if hit := turn.process.limit_hit:
                    log.warning("%s: %s", self.name, hit)
        finally:
            self._owned.pop(turn_id, None)
            await access.close()
