"""RunningTurns: how a turn begins and ends in a backend, whatever kind of agent works in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from codebutler.domain.clock import Clock
from codebutler_worker.agents.backend import AgentEvent, Finished, Reason, TurnRequest, Usage
from codebutler_worker.agents.record import SessionLog, SessionLogs, recording
from codebutler_worker.egress.outlet import Outlet
from codebutler_worker.egress.service import TokenMeter
from codebutler_worker.sandbox.port import Sandbox

# What an agent has used, by its own word and by what passed the proxy.

ERRANDS_TOKENS = 50_000
"""So many a program may use for errands of its own (titles, summaries), which it does not count."""
TOO_MUCH = 2
"""From so many times its own figure on, something else has asked its model."""


def metered(usage: Usage, gauge: TokenMeter | None) -> Usage:
    """``usage``, unless far more passed the proxy: then what passed, at the price of what was told."""
    told = usage.input_tokens + usage.output_tokens
    if gauge is None or gauge.total < told * TOO_MUCH + ERRANDS_TOKENS * (told < ERRANDS_TOKENS):
        return usage
    cost = usage.cost_usd
    if cost is not None and told:
        cost *= gauge.total / told
    return replace(usage, input_tokens=gauge.input, output_tokens=gauge.output, cost_usd=cost)


# What has lasted how long in a turn.


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a turn may take, in seconds; waiting for a person counts for nothing.

    ``start_s``: until the agent gives its first sign of life. ``stall_s``: silence while no tool runs (Claude Code's
    own watchdog takes 300 s). ``stop_s``: how long a turn that was asked to stop has to end by itself.
    ``background_s``: how long the answer waits for commands left in the background, by an agent that tells of them.
    """

    timeout_s: float
    start_s: float = 60.0
    stall_s: float = 600.0
    stop_s: float = 2.0
    background_s: float = 60.0


class Watch:
    """One turn's."""

    def __init__(self, now: float, limits: Limits) -> None:
        self.silent_s = 0.0
        self._last = now
        self._limits = limits
        self._spent_s = 0.0
        self._stall_s = min(limits.start_s, limits.stall_s)

    def heard(self) -> None:
        """The agent gave a sign of life."""
        self._stall_s = self._limits.stall_s
        self.silent_s = 0.0

    def pass_time(self, now: float, *, asking: bool) -> float:
        """Account for the time since the last call, and return it; ``asking``: a person is waited for."""
        passed_s, self._last = now - self._last, now
        if not asking:
            self._spent_s += passed_s
            self.silent_s += passed_s
        return passed_s

    def due(self, *, busy: bool) -> Reason | None:
        """Why the turn must end now; ``busy``: a tool runs, which is silent work."""
        if self._spent_s >= self._limits.timeout_s:
            return "timeout"
        if self.silent_s >= self._stall_s and not busy:
            return "stalled"
        return None


@dataclass(frozen=True, slots=True)
class AgentContext:
    """What every agent works with: the walls its programs run behind, how these reach their model and what else, and
    where each turn's raw stream is kept (None = nowhere)."""

    sandbox: Sandbox
    clock: Clock
    outlet: Outlet = field(default_factory=Outlet)
    logs: SessionLogs | None = None


BUSY = "This agent session is already at work on another message: wait for it, or start a new conversation."

T = TypeVar("T")


class RunningTurns(Generic[T]):
    """One backend's turns. Each is talked to through a ``T``, which there is while its program can hear.

    A session has one owner: two processes on one lose answers without a word (Claude Code 2.1.328). The owner keeps
    it until its process is gone, which may be after its turn's answer.
    """

    def __init__(self, clock: Clock, logs: SessionLogs | None = None) -> None:
        self._clock = clock
        self._logs = logs
        self._closed = False
        self._active: dict[str, T | None] = {}  # by turn; None: its program is only starting, or ending
        self._unwanted: set[str] = set()  # those of them that were asked to stop
        self._claimed: set[str] = set()  # sessions
        self._endings: dict[
            asyncio.Task[None], set[str]
        ] = {}  # processes on their way out, of these sessions

    async def run(
        self,
        turn: TurnRequest,
        work: Callable[[TurnRequest, SessionLog], AsyncGenerator[AgentEvent]],
    ) -> AsyncGenerator[AgentEvent]:
        """The events of ``work``, with what it came to in the turn's log. If the session has an owner, nothing runs."""
        if ending := [task for task, sessions in self._endings.items() if turn.session_id in sessions]:
            await asyncio.wait(ending)
        if turn.session_id in self._claimed:
            yield Finished(ok=False, text=BUSY, reason="failed")
            return
        self._active[turn.turn_id] = None
        try:
            async with (
                recording(self._logs, turn.turn_id, self._clock) as log,
                aclosing(work(turn, log)) as events,
            ):
                async for event in events:
                    if isinstance(event, Finished):
                        log.heard(event)
                    yield event
        finally:
            del self._active[turn.turn_id]
            self._unwanted.discard(turn.turn_id)

    @contextmanager
    def heard_by(self, turn_id: str, listener: T) -> Iterator[None]:
        """In this block the turn is talked to through ``listener``."""
        self._active[turn_id] = listener
        try:
            yield
        finally:
            self._active[turn_id] = None

    def listener(self, turn_id: str) -> T | None:
        """Through what the turn is talked to, None if nobody would hear."""
        return self._active.get(turn_id)

    def listeners(self) -> list[T]:
        """Those of all turns."""
        return [listener for listener in self._active.values() if listener is not None]

    # -- its end

    def unwanted(self, turn_id: str) -> bool:
        """Whether the turn is to end, also where that was said before its program could hear."""
        return self._closed or turn_id in self._unwanted

    def stop(self, turn_id: str) -> T | None:
        """The turn is unwanted from now on; returns through what to tell it."""
        if turn_id in self._active:
            self._unwanted.add(turn_id)
        return self.listener(turn_id)

    def close(self) -> list[T]:
        """All turns are unwanted from now on; returns through what to tell them."""
        self._closed = True
        return self.listeners()

    async def ended(self) -> None:
        """Wait until no process is on its way out."""
        while self._endings:
            await asyncio.wait(self._endings)

    # -- whose a session is

    def claim(self, session_id: str) -> None:
        """A turn of ours owns the session."""
        self._claimed.add(session_id)

    def end(self, sessions: set[str], ending: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Run ``ending``, which ends a process that works in ``sessions``, even if nobody waits for it any more."""
        task = asyncio.create_task(ending, name=name)
        self._endings[task] = sessions
        task.add_done_callback(self._endings.pop)
        return task

    async def release(self, sessions: set[str], ending: Coroutine[None, None, None], name: str) -> None:
        """As ``end``; afterwards the sessions are nobody's."""
        await asyncio.shield(self.end(sessions, self._released(sessions, ending), name))

    async def _released(self, sessions: set[str], ending: Coroutine[None, None, None]) -> None:
        try:
            await ending
        finally:
            self._claimed -= sessions
