"""How long the event loop is kept from everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

TICK_S = 0.02


class Pulse:
    """``worst_s``: how much of the processor it needed at most, in seconds, before it did anything else. Not the time
    that passes: other programs may be busy."""

    def __init__(self) -> None:
        self.worst_s = 0.0

    @asynccontextmanager
    async def felt(self) -> AsyncIterator[None]:
        """While the block runs."""
        beating = asyncio.create_task(self._beat())
        try:
            yield
            await asyncio.sleep(TICK_S)  # for the end of what held it up
        finally:
            beating.cancel()

    async def _beat(self) -> None:
        while True:
            before_s = time.thread_time()
            await asyncio.sleep(TICK_S)
            self.worst_s = max(self.worst_s, time.thread_time() - before_s)
