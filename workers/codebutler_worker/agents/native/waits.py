"""Work that a stop or the turn's time limit may cut off, and answers that people owe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Literal, TypeVar

from codebutler.domain.clock import Clock
from codebutler_worker.agents.backend import Answer

R = TypeVar("R")


class CutOffError(Exception):
    """The turn must end now."""

    def __init__(self, reason: Literal["stopped", "timeout"]) -> None:
        super().__init__(reason)
        self.reason = reason


class Waits:
    """One turn's. Waiting for people counts for nothing."""

    def __init__(self, clock: Clock, limit_s: float) -> None:
        self.stopping = asyncio.Event()
        self._clock = clock
        self._left_s = limit_s
        self._answers: dict[str, asyncio.Future[Answer]] = {}

    async def work(self, doing: Coroutine[Any, Any, R]) -> R:
        """Its result; cancelled and CutOffError if the turn is stopped or its time is up."""
        began_s = self._clock.monotonic()
        alarm = asyncio.create_task(self._clock.sleep(max(0.0, self._left_s)), name="the turn's time limit")
        try:
            return await self._unless(doing, alarm)
        finally:
            alarm.cancel()
            await asyncio.gather(alarm, return_exceptions=True)
            self._left_s -= self._clock.monotonic() - began_s

    def expect(self, request_id: str) -> None:
        """Somebody is going to be asked."""
        self._answers[request_id] = asyncio.get_running_loop().create_future()

    async def answered(self, request_id: str) -> Answer:
        """What they said. Raises CutOffError if the turn is stopped meanwhile."""
        try:
            return await self._unless(_result(self._answers[request_id]), None)
        finally:
            del self._answers[request_id]

    def answer(self, request_id: str, answer: Answer) -> bool:
        """False if nobody waits for it."""
        waiting = self._answers.get(request_id)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

    async def _unless(self, doing: Coroutine[Any, Any, R], alarm: asyncio.Task[None] | None) -> R:
        if self.stopping.is_set():
            doing.close()
            raise CutOffError("stopped")
        task = asyncio.create_task(doing, name="a step of the native agent")
        stop = asyncio.create_task(self.stopping.wait(), name="a stop of the native agent")
        waited: set[asyncio.Task[Any]] = {task, stop, *((alarm,) if alarm else ())}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise CutOffError("stopped" if self.stopping.is_set() else "timeout")
        finally:
            task.cancel()
            stop.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)


async def following(events: AsyncIterator[R]) -> R | None:
    """The next event; None at the end."""
    async for event in events:
        return event
    return None


async def _result(future: asyncio.Future[Answer]) -> Answer:
    return await future
