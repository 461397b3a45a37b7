"""What the repositories have used today, and how much of their daily limits, as their workers last told."""

from __future__ import annotations

from datetime import datetime

import msgspec

from codebutler.protocol.messages import Budget
from codebutler.text.amounts import today


class Budgets:
    """A worker tells when it starts, and whenever something may have changed."""

    def __init__(self) -> None:
        self._told: dict[str, Budget] = {}

    def keep(self, repo: str, budget: Budget) -> None:
        """A worker's newest word."""
        self._told[repo] = budget

    def today(self, repo: str, now: datetime) -> Budget | None:
        """What is used today; of a day that has begun since nothing is used yet. None where nobody has told."""
        told = self._told.get(repo)
        if told is None:
            return None
        try:
            is_over = datetime.fromisoformat(told.until) <= now
        except (ValueError, TypeError):  # a worker is less trusted
            return None
        if not is_over:
            return told
        unused = tuple(msgspec.structs.replace(one, used=0.0) for one in told.limits)
        return Budget(limits=unused, until=told.until)

    def words(self, repo: str, now: datetime) -> str:
        """``3 of 10 runs, $1.20 of $5.00``; "" where nobody has told."""
        told = self.today(repo, now)
        if told is None:
            return ""
        return today(msgspec.to_builtins(told.used), {one.unit: one.limit for one in told.limits})
