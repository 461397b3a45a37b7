"""Time as an argument: everything that waits or stamps takes a Clock.

``monotonic`` measures spans (it survives clock jumps), ``now`` stamps rows and logs (aware, UTC). ``boottime`` is
``monotonic`` that goes on while the machine sleeps (clock_gettime(2), CLOCK_BOOTTIME).
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class Clock(Protocol):
    """What time it is, and waiting for it to pass. All spans are seconds."""

    def monotonic(self) -> float:
        """Seconds since some moment, never set back; stands still while the machine sleeps (Linux)."""

    def boottime(self) -> float:
        """Seconds since some moment, those the machine slept through included."""

    def now(self) -> datetime:
        """The time of day, in UTC; somebody may set it, forwards or back."""

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass; zero or less still lets others run."""


class SystemClock:
    """The real clock."""

    def monotonic(self) -> float:
        """As ``time.monotonic``."""
        return time.monotonic()

    def boottime(self) -> float:
        """Source: clock_gettime(2), CLOCK_BOOTTIME; macOS has none."""
        # Elsewhere the wall clock comes nearest, until somebody sets it.
        return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.time()

    def now(self) -> datetime:
        """The system's time of day."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """As ``asyncio.sleep``."""
        await asyncio.sleep(seconds)


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


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that name (IANA), the machine's own for "". Raises ValueError."""
    # Not for the memory of who asks for no zone.
    if not name:
        from tzlocal import get_localzone

        return get_localzone()
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name!r}: write one like Europe/Berlin") from None
