"""An event loop in a separate thread, for work that must continue while the main loop is busy or blocked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


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
