"""Tells the parent how much of the repository's own limits is used, when that may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial

from codebutler.config.schema import BudgetSection
from codebutler.config.zones import zone_of
from codebutler.protocol.messages import Budget, LimitUse, ToParent
from codebutler_worker.budget.rules import counts, day_of, is_limited, lines
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import iso
from codebutler_worker.store.rows import Account
from codebutler_worker.store.unit_of_work import UnitOfWork

SETTLE_S = 0.5
"""What changes together is told once."""


class Reports:
    """``run`` is its life. Where the repository has no limit nothing is read and nothing told."""

    def __init__(self, desk: Desk, send: Callable[[ToParent], None]) -> None:
        budget = desk.settings.config.budget
        self._desk = desk
        self._send = send
        self._budget = BudgetSection(timezone=budget.timezone, repo=budget.repo)
        self._load = (0, 0, 0)
        self._told: Budget | None = None
        self._changed = asyncio.Event()
        if is_limited(self._budget):
            self._changed.set()

    def look(self, load: tuple[int, int, int]) -> None:
        """There are so many turns running, queued and waiting: look again if these are others than before."""
        if load != self._load and is_limited(self._budget):
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
        config = self._desk.settings.config
        first, until = day_of(now, zone_of(self._budget.timezone))
        spent = uow.turns.spent_between(iso(first), iso(until))
        found = lines(self._budget, [one for one in spent if counts(one.agent, config)], Account("", ""))
        return Budget(
            limits=tuple(LimitUse(unit=line.unit, used=line.used, limit=line.limit) for line in found),
            until=iso(until),
        )
