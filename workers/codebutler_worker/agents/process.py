"""A turn of an agent that runs as a separate program: receiving, timing, stopping and ending it.

One process per turn: anything that it or its tools left running must not outlive the turn, and the next turn resumes
the session by its id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from codebutler.domain.clock import Clock
from codebutler_worker.agents.backend import (
    STOPPED,
    AgentEvent,
    Finished,
    Reason,
    Started,
    TurnRequest,
    Usage,
    Verdict,
)
from codebutler_worker.agents.running import AgentContext, LiveTurn, TurnBackend
from codebutler_worker.egress.access import NetworkAccess
from codebutler_worker.egress.policy import noted
from codebutler_worker.egress.service import ModelService, TokenMeter
from codebutler_worker.programs.process import AgentProcess

TICK_S = 1.0
log = logging.getLogger(__name__)

# What an agent has used: by its own figures, and by what passed the proxy.

UNCOUNTED_TOKENS = 50_000
"""A program may use this many for its own purposes (titles, summaries), which it does not count."""
TOO_MUCH = 2
"""Beyond this multiple of its own figure, something else must have called its model."""


def metered(usage: Usage, gauge: TokenMeter) -> Usage:
    """``usage``, unless far more passed the proxy: then the proxy's figures, with the reported cost scaled up."""
    told = usage.input_tokens + usage.output_tokens
    if gauge.total < told * TOO_MUCH + UNCOUNTED_TOKENS * (told < UNCOUNTED_TOKENS):
        return usage
    cost = usage.cost_usd
    if cost is not None and told:
        cost *= gauge.total / told
    return replace(usage, input_tokens=gauge.input, output_tokens=gauge.output, cost_usd=cost)


@dataclass(frozen=True, slots=True)
class TimeLimits:
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


class TurnWatch:
    """Times of a turn: ``silent_s`` without a sign of life, ``answered_s`` since its result."""

    def __init__(self, now: float, limits: TimeLimits) -> None:
        self.silent_s = 0.0
        self.answered_s = 0.0
        self._last = now
        self._limits = limits
        self._spent_s = 0.0
        self._stall_s = min(limits.start_s, limits.stall_s)

    def heard(self) -> None:
        """The agent gave a sign of life."""
        self._stall_s = self._limits.stall_s
        self.silent_s = 0.0

    def pass_time(self, now: float, *, asking: bool, answered: bool = False) -> None:
        """Account for the time since the last call. ``asking``: waiting for a person. ``answered``: there is a
        result."""
        passed_s, self._last = now - self._last, now
        self.answered_s = self.answered_s + passed_s if answered else 0.0
        if not asking:
            self._spent_s += passed_s
            self.silent_s += passed_s

    def due(self, *, busy: bool) -> Reason | None:
        """Why the turn must end now; ``busy``: a tool is running, which is silent work."""
        if self._spent_s >= self._limits.timeout_s:
            return "timeout"
        if self.silent_s >= self._stall_s and not busy:
            return "stalled"
        return None


H = TypeVar("H")


class ProcessTurn(LiveTurn, ABC, Generic[H]):
    """One prompt in a process; ``H`` is what it receives. Its backend yields ``events``, reads ``verdict``, and calls
    ``end``, which leaves no process behind."""

    title = ""
    """What people call the agent."""
    timeout_key = ""
    eof_s = (1.5, 0.3)
    """How long the process has after its stdin is closed: at the end of its turn, and in the middle of it."""

    def __init__(
        self,
        request: TurnRequest,
        process: AgentProcess,
        access: NetworkAccess,
        clock: Clock,
        limits: TimeLimits,
    ) -> None:
        self.request = request
        self.process = process
        self.access = access
        self.verdict: Verdict | None = None
        self._clock = clock
        self._limits = limits
        self._stopping = False
        self._over = asyncio.Event()
        self._driving: asyncio.Task[None] | None = None
        """Sends the prompt, if that takes more than a moment."""

    @abstractmethod
    async def _begin(self) -> None:
        """Send the prompt, or start sending it."""

    @abstractmethod
    async def _receive(self) -> H:
        """The next message from the agent."""

    @abstractmethod
    async def _take(self, heard: H) -> Sequence[AgentEvent]:
        """The events for a message; sets ``verdict`` if it is the end."""

    @abstractmethod
    async def _look(self) -> Sequence[AgentEvent]:
        """Events that the agent does not report; called every second."""

    @abstractmethod
    def _pass_time(self, watch: TurnWatch, now: float) -> None:
        """Account for the time, depending on what the agent is doing."""

    @abstractmethod
    def _due(self, watch: TurnWatch) -> Verdict | None:
        """The verdict if the turn must end now although the agent has not ended it."""

    @abstractmethod
    async def _interrupt(self) -> bool:
        """Ask the agent to end its turn; False if it cannot be asked."""

    def _rest(self) -> Sequence[AgentEvent]:
        """The remaining events, from messages received before the end."""
        return ()

    @property
    def ends_at_once(self) -> bool:
        """Whether to end the process at once because something may still be running."""
        return self.verdict is None or self.verdict.reason not in ("done", "max_turns")

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Run the prompt and yield its events; afterwards ``verdict`` is set."""
        name = self.request.turn_id
        receive = asyncio.create_task(self._receive(), name=f"receive:{name}")
        tick = asyncio.create_task(self._clock.sleep(TICK_S), name=f"tick:{name}")
        try:
            if self.verdict is None:
                await self._begin()
            watch = TurnWatch(self._clock.monotonic(), self._limits)
            while self.verdict is None:
                await asyncio.wait({receive, tick}, return_when=asyncio.FIRST_COMPLETED)
                self._pass_time(watch, self._clock.monotonic())
                if tick.done():
                    tick = asyncio.create_task(self._clock.sleep(TICK_S), name=f"tick:{name}")
                    for event in await self._look():
                        yield event
                if receive.done():
                    watch.heard()
                    heard = receive.result()
                    receive = asyncio.create_task(self._receive(), name=f"receive:{name}")
                    for event in await self._take(heard):
                        yield event
                elif due := self._due(watch):
                    self.verdict = STOPPED if self._stopping else due
            for event in self._rest():
                yield event
        finally:
            tasks = [receive, tick, *([self._driving] if self._driving else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._over.set()

    async def stop(self) -> None:
        """Ask the agent to end its turn; if it does not in time, end the process. Then the stream ends by itself."""
        self._stopping = True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.stop_s):
                if await self._interrupt():
                    await self._over.wait()
                    return
        await self.end(at_once=True)

    async def end(self, *, at_once: bool) -> None:
        """End the process: close its stdin, then by force. ``at_once``: in the middle of its turn."""
        try:
            await self.process.stop(eof_s=self.eof_s[at_once], term_s=1.0)
        finally:
            await self.access.close()

    def _cut_off(self, reason: Reason) -> Verdict:
        if reason == "timeout":
            minutes = self._limits.timeout_s / 60
            text = f"Stopped after {minutes:g} minutes ({self.timeout_key}): choose Continue to go on."
            return Verdict("timeout", text)
        return Verdict("stalled", f"{self.title} stopped responding: choose Continue to go on.")


T = TypeVar("T", bound=ProcessTurn[Any])


class ProcessBackend(TurnBackend[T]):
    """Starts a process for each turn; the process may start while other preparations are still running."""

    waits_until_ready = True

    def __init__(self, context: AgentContext, limits: TimeLimits) -> None:
        super().__init__(context.clock, context.logs)
        self._context = context
        self._limits = limits

    @abstractmethod
    async def _finished(self, turn: T) -> Finished:
        """The result of the turn, which has its verdict."""

    @asynccontextmanager
    async def _way_out(
        self, request: TurnRequest, service: ModelService | None, hosts: tuple[str, ...]
    ) -> AsyncIterator[NetworkAccess]:
        """Network access for a process started in this block: to ``service``, or to ``hosts`` if it has its own login.
        Raises SandboxUnavailableError."""
        access = await self._context.network_policy.open(request.workdir, service, () if service else hosts)
        try:
            yield access
        except BaseException:  # on a stop too: nobody else would close it
            await access.close()
            raise

    async def _attempt(
        self, request: TurnRequest, opening: Coroutine[Any, Any, T]
    ) -> AsyncGenerator[AgentEvent]:
        """One run in one session, in the process that ``opening`` starts."""
        turn_id, turn = request.turn_id, None
        if request.session_id:
            self._owned[turn_id].add(request.session_id)
        try:
            turn = await opening
            if self._unwanted(turn_id):
                turn.verdict = STOPPED
            self._live[turn_id] = turn
            async with aclosing(turn.events()) as events:
                async for event in events:
                    if isinstance(event, Started) and event.session_id:
                        self._owned[turn_id].add(event.session_id)
                    yield metered(event, turn.access.gauge) if isinstance(event, Usage) else event
            self._live[turn_id] = None
            # The answer does not wait for the process; a consumer that reads to the end does.
            finished = await self._finished(turn)
            if finished.ok and turn.access.refused:
                finished = replace(finished, text=noted(finished.text, turn.access.refused))
            yield replace(finished, usage=metered(finished.usage, turn.access.gauge))
        finally:
            self._live[turn_id] = None
            await asyncio.shield(self._end(turn_id, self._ended(turn), last=True))

    async def _ended(self, turn: T | None) -> None:
        if turn is None:
            return
        await turn.end(at_once=turn.ends_at_once)
        if hit := turn.process.limit_hit:
            log.warning("%s: %s", self.name, hit)
