"""The chat's own time of day. Message stamps are compared with it: our wall clock may be wrong, or be set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

from codebutler.clock import Clock


class ChatClock:
    """A Clock whose ``now`` is what the chat's last answer said, plus the time since; our own before the first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: tuple[datetime, float] | None = None

    def heard(self, date: str) -> None:
        """An answer came with this Date header (RFC 9110); one that cannot be read says nothing."""
        try:
            told = parsedate_to_datetime(date)
        except ValueError:
            return
        self._told = (told if told.tzinfo else told.replace(tzinfo=UTC), self._clock.boottime())

    def now(self) -> datetime:
        """See Clock. Whole seconds and the answer's way make it late, never early: it is safe to look from."""
        if self._told is None:
            return self._clock.now()
        told, at_s = self._told
        return told + timedelta(seconds=self._clock.boottime() - at_s)

    def monotonic(self) -> float:
        """See Clock."""
        return self._clock.monotonic()

    def boottime(self) -> float:
        """See Clock."""
        return self._clock.boottime()

    async def sleep(self, seconds: float) -> None:
        """See Clock."""
        await self._clock.sleep(seconds)
