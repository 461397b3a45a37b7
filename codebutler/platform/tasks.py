"""Background tasks and waiting: tasks are kept, named, reported if they fail, and never left behind; an event loop in a
separate thread, for work that must continue while the main loop is busy or blocked; and memory with a limit, for data
that never stops coming."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from random import Random
from types import TracebackType
from typing import Any, Generic, TypeVar, TypeVarTuple

from codebutler.domain.clock import Clock

Told = TypeVarTuple("Told")
K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Tasks:
    """Holds every task it started until it ends; ``on_failure`` is called for each that raised."""

    def __init__(self, on_failure: Callable[[str, BaseException], None]) -> None:
        self._on_failure = on_failure
        self._running: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._running)

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

    async def join(self) -> None:
        """Wait for all that run now. Cancelling this cancels none of them."""
        if self._running:
            await asyncio.wait(self._running)

    async def close(self, timeout_s: float) -> None:
        """Wait for all tasks, then cancel the rest and wait for them."""
        if self._running:
            await asyncio.wait(self._running, timeout=timeout_s)
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)


@asynccontextmanager
async def beside(work: Coroutine[object, object, None], *, name: str) -> AsyncIterator[None]:
    """Run ``work`` while the block runs, and end it with the block. What it raises is raised at the block's end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@contextmanager
def ungrouped() -> Iterator[None]:
    """Raise an error that is alone in its exception group as itself, so that a caller of a task group can name it."""
    try:
        yield
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None


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
    """True if the event came; False after ``at_most_s`` seconds (None = wait forever)."""
    if at_most_s is None:
        await event.wait()
    elif at_most_s > 0 and not event.is_set():
        await first_of(event.wait(), clock.sleep(at_most_s))
    return event.is_set()


async def settled_within(clock: Clock, future: asyncio.Future[Any], at_most_s: float) -> bool:
    """Whether ``future`` is done within ``at_most_s`` seconds. Otherwise it continues, even if this is cancelled."""
    alarm = asyncio.create_task(clock.sleep(at_most_s), name="deadline")
    try:
        await asyncio.wait((future, alarm), return_when=asyncio.FIRST_COMPLETED)
    finally:
        alarm.cancel()
        await asyncio.gather(alarm, return_exceptions=True)
    return future.done()


def full_jitter_s(rng: Random, failures: int, base_s: float, cap_s: float) -> float:
    """Seconds to wait after ``failures`` failures in a row: uniform between 0 and the doubled base, capped.

    Without failures, no wait. Full jitter spreads out many clients that failed together.
    """
    if failures <= 0:
        return 0.0
    return rng.uniform(0.0, min(cap_s, base_s * 2.0 ** min(failures - 1, 32)))


class Observers(Generic[*Told]):
    """``tell`` calls all added observers in order, with its arguments."""

    def __init__(self) -> None:
        self._observers: list[Callable[[*Told], None]] = []

    def add(self, observer: Callable[[*Told], None]) -> None:
        """Call ``observer`` from now on."""
        self._observers.append(observer)

    def tell(self, *told: *Told) -> None:
        """Notify all observers."""
        for observer in self._observers:
            observer(*told)


def abort(transport: asyncio.WriteTransport) -> None:
    """Close the transport without sending what is buffered; does nothing if it has already ended.

    The TLS transport of Python 3.11.2 raises AttributeError if its connection is gone; later ones do nothing.
    """
    with suppress(AttributeError):
        transport.abort()


class BoundedDict(OrderedDict[K, V]):
    """A dictionary of the ``most`` entries that were set last: one more, and the oldest is forgotten. Setting an entry
    again makes it the newest."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.most:
            self.popitem(last=False)


class LoopThread:
    """A thread with an event loop: ``async with LoopThread("name") as own``. Use objects that are created in its loop
    only there."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    async def __aenter__(self) -> LoopThread:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` there; returns or raises what it does. Cancelling this cancels ``work`` without waiting for its
        end."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    @asynccontextmanager
    async def entered(self, context: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enters and leaves ``context`` there, in two separate tasks."""
        value = await self.run(_entering(context))
        try:
            yield value
        finally:
            await self.run(_leaving(context))


async def _entering(context: AbstractAsyncContextManager[T]) -> T:
    return await context.__aenter__()


async def _leaving(context: AbstractAsyncContextManager[T]) -> None:
    await context.__aexit__(None, None, None)


async def _cancel_all() -> None:
    """Cancel all other tasks that still run there."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
