"""While a turn runs: what it uses is written down and told to the parent, and it is ended when a limit is met."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from codebutler.config.schema import BudgetSection
from codebutler.domain.clock import zone_of
from codebutler.domain.errors import StoreError
from codebutler.platform.tasks import wait_for
from codebutler.protocol.messages import Budget, LimitUse, ToParent
from codebutler_worker.agents.backend import Usage
from codebutler_worker.budget.rules import (
    NOBODY,
    BudgetLine,
    account_of,
    counts,
    day_of,
    is_limited,
    lines,
    spent_today,
    used_up,
)
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, iso
from codebutler_worker.store.rows import Spent, TurnRow, Used
from codebutler_worker.store.unit_of_work import UnitOfWork

# While a turn runs: what it uses is written down, and it is ended when a limit is met.

KEEP_S = 5.0
"""So much of a turn's use, at most, is forgotten when its worker is killed."""


class BudgetWatch:
    """Of one turn that runs. ``met`` is the limit that was met, ``until`` when the next day begins."""

    def __init__(self, desk: Desk, turn: TurnRow) -> None:
        config = desk.settings.config
        self.met: BudgetLine | None = None
        self.is_limited = is_limited(config.budget) and counts(turn.agent, config)
        self.until = desk.clock.now()
        self._desk = desk
        self._turn = turn
        self._usage = Usage()
        self._others: Sequence[Spent] = ()
        self._worked_s = 0.0
        self._looked_s = desk.clock.monotonic()
        self._waits = False
        self._over = asyncio.Event()

    @property
    def worked_s(self) -> float:
        """How long the agent has worked."""
        now_s = self._desk.clock.monotonic()
        if not self._waits:
            self._worked_s += now_s - self._looked_s
        self._looked_s = now_s
        return self._worked_s

    def waits(self, *, waiting: bool) -> None:
        """It waits for a person from now on, or does not any more: that time is not worked."""
        self._worked_s = self.worked_s
        self._waits = waiting

    def heard(self, usage: Usage) -> None:
        """The turn has used so much."""
        self._usage = usage
        if self.is_limited and self.met is None:
            self._judge()

    async def run(self) -> None:
        """Until a limit is met. For a turn that ``is_limited``."""
        while self.met is None:
            try:
                self._others = await self._desk.commit(self._keep)
            except StoreError as error:
                self._desk.report.log("ERR", f"what a turn uses is not written down: {error}")
            self._judge()
            if self.met is None:
                await wait_for(self._desk.clock, self._over, KEEP_S)

    def _keep(self, draft: Draft) -> list[Spent]:
        """Write down what the turn has used; returns what the others of its day have."""
        config, usage = self._desk.settings.config, self._usage
        draft.uow.turns.update(
            self._turn.id,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            agent_turns=usage.turns,
            worked_s=self.worked_s,
        )
        first, self.until = self._day()
        others = draft.uow.turns.spent_between(
            iso(first), iso(self.until), account_of(self._turn), without=self._turn.id
        )
        return [one for one in others if counts(one.agent, config)]

    def _judge(self) -> None:
        usage = self._usage
        tokens = usage.input_tokens + usage.output_tokens
        account = account_of(self._turn)
        own = Spent(self._turn.agent, account, Used(usage.cost_usd or 0.0, tokens, 1, self.worked_s / 60))
        found = lines(self._desk.settings.config.budget, [*self._others, own], account)
        # That it is the last one allowed is no reason to end it.
        self.met = used_up([line for line in found if line.unit != "turns"])
        if self.met is not None:
            self._over.set()

    def _day(self) -> tuple[datetime, datetime]:
        """The day on which the turn began."""
        began = self._turn.started_at
        moment = datetime.fromisoformat(began) if began else self._desk.clock.now()
        return day_of(moment, zone_of(self._desk.settings.config.budget.timezone))


# Tells the parent what is used today, and of which of the repository's own limits, when that may have changed.

SETTLE_S = 0.5
"""What changes together is told once."""


class BudgetReports:
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
        """There are so many turns running, queued and waiting: look again if one has ended, or if one that runs writes
        down what it uses."""
        ended = load[0] + load[2] < self._load[0] + self._load[2]
        if ended or (load[0] and is_limited(self._desk.settings.config.budget)):
            self._changed.set()
        self._load = load

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
