"""Background tasks that somebody keeps: named, and told of when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress


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
