"""Time that stands still until a test lets it pass."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime


class ManualClock:
    """A clock that stands still until told to advance; sleepers wake in order of their deadline."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """Seconds that ``advance`` was told, all together."""
        return self._elapsed_s

    def boottime(self) -> float:
        """This clock's machine never sleeps."""
        return self._elapsed_s

    def now(self) -> datetime:
        """The start, and what was advanced since."""
        return datetime.fromtimestamp(self._start.timestamp() + self._elapsed_s, UTC)

    async def sleep(self, seconds: float) -> None:
        """Ends only when the clock is advanced far enough."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._elapsed_s + seconds, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass, waking each sleeper at its own moment and letting it run."""
        target_s = self._elapsed_s + seconds
        await settle()
        while due := sorted((s for s in self._sleepers if s[0] <= target_s), key=lambda s: s[0]):
            wake_s, future = due[0]
            self._sleepers.remove(due[0])
            self._elapsed_s = max(self._elapsed_s, wake_s)
            if not future.done():
                future.set_result(None)
            await settle()
        self._elapsed_s = target_s


async def settle(rounds: int = 20) -> None:
    """Give every ready task of the loop its turn."""
    for _ in range(rounds):
        await asyncio.sleep(0)
