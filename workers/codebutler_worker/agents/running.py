"""RunningTurns: how a turn begins and ends in a backend, whatever kind of agent works in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from typing import Generic, TypeVar

from codebutler.clock import Clock
from codebutler_worker.agents.backend import AgentEvent, Finished, TurnRequest
from codebutler_worker.agents.record import SessionLog, SessionLogs, recording

BUSY = "This agent session is already at work on another message: wait for it, or start a new conversation."

T = TypeVar("T")


class RunningTurns(Generic[T]):
    """One backend's turns. Each is talked to through a ``T``, which there is while its program can hear.

    A session has one owner: two processes on one lose answers without a word (Claude Code 2.1.328). The owner keeps
    it until its process is gone, which may be after its turn's answer.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
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
        logs: SessionLogs | None,
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
                recording(logs, turn.turn_id, self._clock) as log,
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
