"""Waiting for a condition that somebody else brings about, without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Signal:
    """``notify`` after every change; ``until`` looks again after each and returns the first true answer."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Something has changed: everybody who waits looks again. Costs nothing when nobody does."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, look: Callable[[], T | None], timeout_s: float) -> T:
        """Raises TimeoutError when ``look`` answered nothing true within ``timeout_s``."""
        async with asyncio.timeout(timeout_s):
            while not (found := look()):
                await self._changed()
            return found

    async def _changed(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
