"""What the other repositories have used, as the parent last told."""

from __future__ import annotations

from datetime import datetime

from codebutler.protocol.messages import DayUse, TotalUse
from codebutler_worker.store.rows import UsageTotal


class Elsewhere:
    """One per worker. A day or a month that begins is empty until the parent tells more."""

    def __init__(self) -> None:
        self._told: TotalUse | None = None

    def take(self, told: TotalUse | None) -> None:
        """The parent's newest word."""
        self._told = told

    def on_day(self, until: datetime) -> UsageTotal:
        """On the day that ends then."""
        told = self._told
        return _of(told.day) if told and datetime.fromisoformat(told.until) == until else UsageTotal()

    def in_month(self, until: datetime) -> UsageTotal:
        """In the month that ends then."""
        told = self._told
        return _of(told.month) if told and datetime.fromisoformat(told.month_until) == until else UsageTotal()


def _of(use: DayUse) -> UsageTotal:
    return UsageTotal(use.usd, use.tokens, use.runs, use.minutes)
