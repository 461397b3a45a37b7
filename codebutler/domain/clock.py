"""Time as an argument: everything that waits or stamps takes a Clock.

``monotonic`` measures spans (it survives clock jumps), ``now`` stamps rows and logs (aware, UTC).
``boottime`` is ``monotonic`` that also counts while the machine sleeps (clock_gettime(2), CLOCK_BOOTTIME).
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo


class Clock(Protocol):
    """Tells the time, and sleeps. All spans are in seconds."""

    def monotonic(self) -> float:
        """Seconds since some moment, never set back; does not count while the machine sleeps (Linux)."""

    def boottime(self) -> float:
        """Seconds since some moment, including those the machine slept."""

    def now(self) -> datetime:
        """The time of day, in UTC; it may be set, forwards or back."""

    async def sleep(self, seconds: float) -> None:
        """Wait ``seconds``; zero or less still lets other tasks run."""


class SystemClock:
    """The real clock."""

    def monotonic(self) -> float:
        """As ``time.monotonic``."""
        return time.monotonic()

    def boottime(self) -> float:
        """Source: clock_gettime(2), CLOCK_BOOTTIME; on macOS, clock_gettime(3), CLOCK_MONOTONIC, which is not the clock
        of ``time.monotonic``."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def now(self) -> datetime:
        """The system's time of day."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """As ``asyncio.sleep``."""
        await asyncio.sleep(seconds)


def zone_of(name: str) -> ZoneInfo:
    """The time zone of that name (IANA), the machine's own for "". Raises ValueError."""
    # Imported here: without a zone it costs no memory.
    if not name:
        from tzlocal import get_localzone

        return get_localzone()
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"unknown time zone {name!r}: write one like Europe/Berlin") from None
