"""How much of their daily limits the repositories have used, as their workers last told."""

from __future__ import annotations

from datetime import datetime

import msgspec

from codebutler.protocol.messages import Budget, LimitUse
from codebutler.text.amounts import used_of


class Budgets:
    """A worker tells when it starts, and whenever something may have changed."""

    def __init__(self) -> None:
        self._told: dict[str, Budget] = {}

    def keep(self, repo: str, budget: Budget) -> None:
        """A worker's newest word."""
        self._told[repo] = budget

    def used(self, repo: str, now: datetime) -> tuple[LimitUse, ...]:
        """Every limit of the repository; of a day that has begun since nothing is used yet."""
        told = self._told.get(repo)
        if told is None:
            return ()
        try:
            is_over = datetime.fromisoformat(told.until) <= now
        except (ValueError, TypeError):  # a worker is less trusted
            return ()
        return tuple(msgspec.structs.replace(one, used=0.0) if is_over else one for one in told.limits)

    def words(self, repo: str, now: datetime) -> str:
        """``$1.20 of $5.00, 3 of 10 turns``; "" without any limit."""
        return ", ".join(used_of(one.unit, one.used, one.limit) for one in self.used(repo, now))
