"""Background tasks and waiting: kept, named, told of when they fail, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, Generic, TypeVarTuple

from codebutler.domain.clock import Clock


class Tasks:
    """Holds every task it started until it ends; ``on_failure`` hears of each that raised."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[object, object, None], *, name: str) -> asyncio.Task[None]:
        """Run ``work`` in the background."""
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(task.get_name(), error)

    async def close(self, timeout_s: float) -> None:
        """Wait for all, then cancel what is left and wait for that."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


@asynccontextmanager
async def beside(work: Coroutine[object, object, None], *, name: str) -> AsyncIterator[None]:
    """Run ``work`` beside the block and end it with it. What it raises, the block's end raises."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def cancel(tasks: set[asyncio.Task[None]]) -> None:
    """Cancel ``tasks`` and wait until they are gone."""
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def first_of(*parts: Coroutine[Any, Any, Any]) -> None:
    """Return when one of ``parts`` has ended; the others are cancelled and awaited. Raises what it raised."""
    tasks = [asyncio.create_task(part, name="wait") for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def wait_for(clock: Clock, event: asyncio.Event, at_most_s: float | None) -> bool:
    """True if the event came; False if ``at_most_s`` seconds passed first (None = wait for ever)."""
    if at_most_s is None:
        await event.wait()
    elif at_most_s > 0 and not event.is_set():
        await first_of(event.wait(), clock.sleep(at_most_s))
    return event.is_set()


async def settled_within(clock: Clock, future: asyncio.Future[Any], at_most_s: float) -> bool:
    """Whether ``future`` is done within ``at_most_s`` seconds. It goes on if it is not, and if this is cancelled."""
    alarm = asyncio.create_task(clock.sleep(at_most_s), name="deadline")
    try:
        await asyncio.wait((future, alarm), return_when=asyncio.FIRST_COMPLETED)
    finally:
        alarm.cancel()
        await asyncio.gather(alarm, return_exceptions=True)
    return future.done()


def full_jitter_s(rng: Random, failures: int, base_s: float, cap_s: float) -> float:
    """Seconds to wait after ``failures`` failures in a row: uniform between 0 and the doubled base, capped.

    No failure, no wait. Full jitter spreads many clients that failed together.
    """
    if failures <= 0:
        return 0.0
    return rng.uniform(0.0, min(cap_s, base_s * 2.0 ** min(failures - 1, 32)))


Told = TypeVarTuple("Told")


class Observers(Generic[*Told]):
    """``tell`` calls everybody who was added, in order, with what it is given."""

    def __init__(self) -> None:
        self._observers: list[Callable[[*Told], None]] = []

    def add(self, observer: Callable[[*Told], None]) -> None:
        """``observer`` is told from now on."""
        self._observers.append(observer)

    def tell(self, *told: *Told) -> None:
        """It has happened."""
        for observer in self._observers:
            observer(*told)


def abort(transport: asyncio.WriteTransport) -> None:
    """Close it without sending what is buffered; one that has already ended is left as it is.

    The TLS transport of Python 3.11.2 raises AttributeError where its connection is gone; later ones do nothing.
    """
    with suppress(AttributeError):
        transport.abort()
