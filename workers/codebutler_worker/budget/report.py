"""Tells the parent what is used today, and of which of the repository's own limits, when that may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

from codebutler.config.schema import BudgetSection
from codebutler.protocol.messages import Budget, LimitUse, ToParent
from codebutler_worker.budget.rules import is_limited, lines
from codebutler_worker.budget.today import NOBODY, spent_today
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import iso
from codebutler_worker.store.unit_of_work import UnitOfWork

SETTLE_S = 0.5
"""What changes together is told once."""


class Reports:
    """``run`` is its life: it tells at the start, and an idle worker reads nothing more."""

    def __init__(self, desk: Desk, send: Callable[[ToParent], None]) -> None:
        budget = desk.settings.config.budget
        self._desk = desk
        self._send = send
        self._budget = BudgetSection(timezone=budget.timezone, repo=budget.repo)
        self._load = (0, 0, 0)
        self._told: Budget | None = None
        self._changed = asyncio.Event()
        # Nobody else knows what an earlier life used today.
        self._changed.set()

    def look(self, load: tuple[int, int, int]) -> None:
        """There are so many turns running, queued and waiting: look again if these are others than before, or if one
        that runs writes down what it uses."""
        if load != self._load or (load[0] and is_limited(self._desk.settings.config.budget)):
            self._load = load
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            await self._desk.clock.sleep(SETTLE_S)
            self._changed.clear()
            now = self._desk.clock.now()
            told = await self._desk.store.run(partial(self._used, now=now))
            if told != self._told:
                self._told = told
                self._send(told)

    def _used(self, uow: UnitOfWork, now: datetime) -> Budget:
        today = spent_today(uow, now, self._desk.settings.config)
        found = lines(self._budget, today.spent, NOBODY)
        return Budget(
            limits=tuple(LimitUse(unit=line.unit, used=line.used, limit=line.limit) for line in found),
            until=iso(today.until),
            used=today.used,
        )
