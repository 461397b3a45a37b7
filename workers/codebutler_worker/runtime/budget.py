"""A day's use, and which limit leaves no room for more. Pure.

Every repository is counted separately: a user's limit applies per repository. Only ``total`` also counts the other
repositories, as the parent reports them. A turn belongs to the day on which it started, and to its user unless a job
asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import cache, partial
from types import MappingProxyType
from typing import Literal, get_args

from msgspec import Struct, field

from codebutler.config.programs import uses_model
from codebutler.config.schema import Config
from codebutler.config.section import BudgetSection, DailyLimit, limits_any
from codebutler.domain.clock import zone_of
from codebutler.domain.errors import StoreError
from codebutler.domain.refs import NO_PERSON
from codebutler.platform.tasks import wait_for
from codebutler.protocol.messages import DayUse, TotalUse
from codebutler.text.wording import Unit, used_of
from codebutler_worker.agents.backend import Usage
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import BudgetAccount, Spent, TurnRow, UsageTotal, main_conversation
from codebutler_worker.store.unit_of_work import UnitOfWork, iso

Account = Literal["repo", "user", "thread", "job"]
Scope = Literal["repo", "user", "thread", "job", "total"]
Period = Literal["day", "month"]

ACCOUNTS: tuple[Account, ...] = get_args(Account)
SCOPES: tuple[Scope, ...] = get_args(Scope)
PERIODS: tuple[Period, ...] = get_args(Period)
UNITS: tuple[Unit, ...] = get_args(Unit)
# The account of the whole repository.
NOBODY = BudgetAccount(NO_PERSON, "")
WHOSE: Mapping[Scope, str] = MappingProxyType(
    {
        "repo": "This repository's",
        "user": "Your",
        "thread": "This thread's",
        "job": "This job's",
        "total": "The total",
    }
)
_NAMES: Mapping[Account, str] = MappingProxyType(
    {"repo": "repository", "user": "you", "thread": "this thread", "job": "this job"}
)
WHEN: Mapping[Period, str] = MappingProxyType({"day": "today", "month": "this month"})
KEEP_S = 5.0
"""At most this much of a turn's use is lost when its worker is killed."""


class BudgetLine(Struct, frozen=True):
    """One limit, and its use."""

    scope: Scope
    unit: Unit
    used: float
    limit: float
    period: Period = "day"

    @property
    def key(self) -> str:
        """The configuration key that sets it."""
        return f"budget.{self.scope}.{self.unit}Per{self.period.title()}"


class Beyond(Struct, frozen=True):
    """What counts toward the total beside the repository's own day: that of the other repositories, and for the month
    also its own earlier days."""

    day: UsageTotal = field(default_factory=UsageTotal)
    month: UsageTotal = field(default_factory=UsageTotal)


def day_of(now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The start of ``now``'s day in ``zone``, and of the next one; both in UTC."""
    today = now.astimezone(zone).date()
    first, next_one = (
        datetime.combine(day, time(), zone).astimezone(UTC) for day in (today, today + timedelta(days=1))
    )
    return first, next_one


def month_of(now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The same for its month."""
    first = now.astimezone(zone).date().replace(day=1)
    begin, end = (
        datetime.combine(day, time(), zone).astimezone(UTC)
        for day in (first, (first + timedelta(days=31)).replace(day=1))
    )
    return begin, end


def end_of(period: Period, now: datetime, zone: tzinfo) -> datetime:
    """When the next day or month begins."""
    return (day_of if period == "day" else month_of)(now, zone)[1]


@cache
def is_limited(budget: BudgetSection) -> bool:
    """Whether there is any limit."""
    return any(limits_any(getattr(budget, scope)) for scope in SCOPES)


def is_shared(budget: BudgetSection) -> bool:
    """Whether all repositories together have a limit."""
    return limits_any(budget.total)


def lines(
    budget: BudgetSection, spent: Sequence[Spent], account: BudgetAccount, beyond: Beyond | None = None
) -> tuple[BudgetLine, ...]:
    """Every limit that concerns the account, and its use; the total's where it is known what is used ``beyond``."""
    found = []
    for scope in ACCOUNTS:
        limits = _limits(getattr(budget, scope))
        if not limits or not _concerns(scope, account):
            continue
        used = sum((one.used for one in spent if _same(scope, one.account, account)), UsageTotal())
        found += [BudgetLine(scope, unit, getattr(used, unit), limit) for unit, limit in limits]
    if beyond is not None and is_shared(budget):
        own = sum((one.used for one in spent), UsageTotal())
        for period in PERIODS:
            used = own + (beyond.day if period == "day" else beyond.month)
            found += [
                BudgetLine("total", unit, getattr(used, unit), limit, period)
                for unit, limit in _limits(budget.total, period)
            ]
    return tuple(found)


def used_up(lines: Sequence[BudgetLine]) -> BudgetLine | None:
    """The first exhausted limit, None if there is none."""
    return next((line for line in lines if line.used >= line.limit), None)


def _limits(limit: DailyLimit, period: Period = "day") -> list[tuple[Unit, float]]:
    values = ((unit, getattr(limit, f"{unit}_per_{period}")) for unit in UNITS)
    return [(unit, value) for unit, value in values if value is not None]


def _concerns(scope: Account, account: BudgetAccount) -> bool:
    match scope:
        case "job":
            return bool(account.job)
        case "user":
            return not account.job
    return True


def _same(scope: Account, one: BudgetAccount, other: BudgetAccount) -> bool:
    match scope:
        case "repo":
            return True
        case "thread":
            return one.conversation == other.conversation
        case "job":
            return one.job == other.job
    return not one.job and one.user == other.user


# Today's use and its budgets, from the store: the one count behind everything that is shown.


def account_of(turn: TurnRow) -> BudgetAccount:
    """The account a turn is charged to: that of the thread in which an agent races."""
    return BudgetAccount(turn.user_id, main_conversation(turn.conversation), turn.job)


class Today(Struct, frozen=True):
    """The use of the runs that started today, and when today ends."""

    spent: tuple[Spent, ...]
    until: datetime

    @property
    def used(self) -> DayUse:
        """All of it together."""
        all_ = sum((one.used for one in self.spent), UsageTotal())
        return DayUse(runs=all_.turns, tokens=all_.tokens, usd=all_.usd, minutes=all_.minutes)


def spent_today(uow: UnitOfWork, config: Config, account: BudgetAccount = NOBODY) -> Today:
    """The use of all agents in the repository, and of our own model requests; summed up for ``account``."""
    first, until = day_of(uow.now, zone_of(config.budget.timezone))
    spent = uow.turns.spent_between(iso(first), iso(until), account)
    return Today(tuple(one for one in spent if uses_model(config, one.agent)), until)


def used_today(
    uow: UnitOfWork, config: Config, account: BudgetAccount, elsewhere: TotalUse | None = None
) -> tuple[BudgetLine, ...]:
    """Every limit that concerns the account, and its use today; the total's with what is used ``elsewhere``."""
    if not is_limited(config.budget):
        return ()
    beyond = beyond_day(uow, config, elsewhere, uow.now) if elsewhere is not None else None
    return lines(config.budget, spent_today(uow, config, account).spent, account, beyond)


def beyond_day(uow: UnitOfWork, config: Config, elsewhere: TotalUse, moment: datetime) -> Beyond:
    """What counts toward the total beside the repository's own day, of which ``moment`` is one."""
    if not is_shared(config.budget):
        return Beyond()
    zone = zone_of(config.budget.timezone)
    today, until = day_of(moment, zone)
    first, month_until = month_of(moment, zone)
    earlier = uow.turns.spent_between(iso(first), iso(today), NOBODY)
    own = sum((one.used for one in earlier if uses_model(config, one.agent)), UsageTotal())
    return Beyond(
        _reported(elsewhere.day, elsewhere.until, until),
        _reported(elsewhere.month, elsewhere.month_until, month_until) + own,
    )


def _reported(use: DayUse, known_until: str, until: datetime) -> UsageTotal:
    """The reported use, if its period is the current one; a new period is empty until the parent reports again."""
    if not known_until or datetime.fromisoformat(known_until) != until:
        return UsageTotal()
    return UsageTotal(use.usd, use.tokens, use.runs, use.minutes)


# Limits and their use, in words.


def used_up_text(line: BudgetLine) -> str:
    """Why a turn has to wait, and what to do about it."""
    return (
        f"{WHOSE[line.scope]} budget for {WHEN[line.period]} is used up: "
        f"{used_of(line.unit, line.used, line.limit)}. "
        f"To continue sooner, raise {line.key} in the configuration, then press Try now."
    )


def overview(lines: Sequence[BudgetLine]) -> str:
    """``Budget today: repository $1.20 of $5.00, 3 of 10 turns · you …``; "" without any limit."""
    shown = []
    for scope, name in _NAMES.items():
        parts = [used_of(line.unit, line.used, line.limit) for line in lines if line.scope == scope]
        if parts:
            shown.append(f"{name} {', '.join(parts)}")
    return f"Budget today: {' · '.join(shown)}" if shown else ""


# While a turn runs: its use is stored, and it is ended at a limit.


class BudgetWatch:
    """The use of one running turn, which ``counts`` if it asks a model. ``met`` is the limit it reached, ``until`` when
    the next day starts."""

    def __init__(self, runtime: Runtime, turn: TurnRow, *, counts: bool) -> None:
        config = runtime.settings.config
        self.met: BudgetLine | None = None
        self.counts = counts
        self.is_limited = counts and is_limited(config.budget)
        self.usage = Usage()
        """The turn's use so far."""
        began = turn.started_at
        self._began = datetime.fromisoformat(began) if began else runtime.clock.now()
        self.until = self._began
        self._runtime = runtime
        self._turn = turn
        self._kept = self.usage
        self._others: Sequence[Spent] = ()
        self._beyond = Beyond()
        self._worked_s = 0.0
        self._looked_s = runtime.clock.monotonic()
        self._waits = False
        self._over = asyncio.Event()

    @property
    def worked_s(self) -> float:
        """How long the agent has worked."""
        now_s = self._runtime.clock.monotonic()
        if not self._waits:
            self._worked_s += now_s - self._looked_s
        self._looked_s = now_s
        return self._worked_s

    def waits(self, *, waiting: bool) -> None:
        """It waits for a person from now on, or no longer: waiting is not work."""
        self._worked_s = self.worked_s
        self._waits = waiting

    async def run(self, at_limit: Callable[[], Awaitable[None]]) -> None:
        """Watch until a limit is reached, and then call ``at_limit``. For a turn that ``counts``."""
        while self.met is None:
            if self.is_limited or self.usage != self._kept:
                await self._look()
            if self.met is None:
                await wait_for(self._runtime.clock, self._over, KEEP_S)
        await at_limit()

    async def _look(self) -> None:
        """Store the turn's use, and see whether a limit is reached."""
        usage = self.usage
        try:
            self._others, self._beyond = await self._runtime.commit(partial(self._keep, usage=usage))
            self._kept = usage
        except StoreError as error:
            self._runtime.log("ERR", f"cannot record the usage of a run: {error}")
        self.judge()

    def _keep(self, uow: UnitOfWork, usage: Usage) -> tuple[list[Spent], Beyond]:
        """Store the turn's use; returns that of the day's other turns, and what is used beyond the day."""
        config = self._runtime.settings.config
        uow.turns.update(
            self._turn.id,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            agent_turns=usage.turns,
            worked_s=self.worked_s,
        )
        if not self.is_limited:
            return [], Beyond()
        first, until = day_of(self._began, zone_of(config.budget.timezone))
        beyond = beyond_day(uow, config, self._runtime.elsewhere, self._began)
        others = uow.turns.spent_between(
            iso(first), iso(until), account_of(self._turn), without=self._turn.id
        )
        return [one for one in others if uses_model(config, one.agent)], beyond

    def judge(self) -> None:
        """See whether the use so far reaches a limit."""
        usage = self.usage
        tokens = usage.input_tokens + usage.output_tokens
        account = account_of(self._turn)
        own = Spent(
            self._turn.agent, account, UsageTotal(usage.cost_usd or 0.0, tokens, 1, self.worked_s / 60)
        )
        budget = self._runtime.settings.config.budget
        found = lines(budget, [*self._others, own], account, self._beyond)
        # A limit on the number of turns does not end the last one.
        self.met = used_up([line for line in found if line.unit != "turns"])
        if self.met is not None:
            self.until = end_of(self.met.period, self._began, zone_of(budget.timezone))
            self._over.set()
