"""What was used on a day, and which limit leaves no room for more. Pure.

Every repository counts for itself: a user's limit is what that user may use in this one. A turn belongs to the day on
which it began, and to its user unless a job asked for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from types import MappingProxyType
from typing import Literal, get_args

from codebutler.config.programs import program_of
from codebutler.config.schema import BudgetSection, Config, DailyLimit
from codebutler.domain.clock import zone_of
from codebutler.domain.errors import StoreError
from codebutler.platform.tasks import wait_for
from codebutler.protocol.messages import DayUse
from codebutler.text.amounts import Unit, used_of
from codebutler_worker.agents.backend import Usage
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import UNDO
from codebutler_worker.store.rows import BudgetAccount, Spent, TurnRow, UsageTotal
from codebutler_worker.store.unit_of_work import UnitOfWork, iso

Scope = Literal["repo", "user", "thread", "job"]

SCOPES: tuple[Scope, ...] = get_args(Scope)
UNITS: tuple[Unit, ...] = get_args(Unit)
# For what counts for the whole repository.
NOBODY = BudgetAccount("", "")
WHOSE: Mapping[Scope, str] = MappingProxyType(
    {"repo": "This repository's", "user": "Your", "thread": "This thread's", "job": "This job's"}
)
_NAMES: Mapping[Scope, str] = MappingProxyType(
    {"repo": "repository", "user": "you", "thread": "this thread", "job": "this job"}
)
KEEP_S = 5.0
"""So much of a turn's use, at most, is forgotten when its worker is killed."""


@dataclass(frozen=True, slots=True)
class BudgetLine:
    """One limit, and how much of it is used."""

    scope: Scope
    unit: Unit
    used: float
    limit: float

    @property
    def is_used_up(self) -> bool:
        """Whether it leaves no room for another turn."""
        return self.used >= self.limit

    @property
    def key(self) -> str:
        """The key of the configuration that sets it."""
        return f"budget.{self.scope}.{self.unit}PerDay"


def day_of(now: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The first moment of the day of ``zone`` in which ``now`` lies, and of the next one; both in UTC."""
    today = now.astimezone(zone).date()
    first, next_one = (
        datetime.combine(day, time(), zone).astimezone(UTC) for day in (today, today + timedelta(days=1))
    )
    return first, next_one


def counts(agent: str, config: Config) -> bool:
    """Whether a turn of this agent is on any budget: a program and what we do ourselves asks no model."""
    return agent != UNDO and program_of(config, agent) is None


def is_limited(budget: BudgetSection) -> bool:
    """Whether there is any limit."""
    return any(_limits(getattr(budget, scope)) for scope in SCOPES)


def lines(budget: BudgetSection, spent: Sequence[Spent], account: BudgetAccount) -> tuple[BudgetLine, ...]:
    """Every limit that concerns the account, and how much of it is used."""
    found = []
    for scope in SCOPES:
        limits = _limits(getattr(budget, scope))
        if not limits or not _concerns(scope, account):
            continue
        used = sum((one.used for one in spent if _same(scope, one.account, account)), UsageTotal())
        found += [BudgetLine(scope, unit, getattr(used, unit), limit) for unit, limit in limits]
    return tuple(found)


def used_up(lines: Sequence[BudgetLine]) -> BudgetLine | None:
    """The first limit that leaves no room, None if all do."""
    return next((line for line in lines if line.is_used_up), None)


def _limits(limit: DailyLimit) -> list[tuple[Unit, float]]:
    values = ((unit, getattr(limit, f"{unit}_per_day")) for unit in UNITS)
    return [(unit, value) for unit, value in values if value is not None]


def _concerns(scope: Scope, account: BudgetAccount) -> bool:
    match scope:
        case "job":
            return bool(account.job)
        case "user":
            return not account.job
    return True


def _same(scope: Scope, one: BudgetAccount, other: BudgetAccount) -> bool:
    match scope:
        case "repo":
            return True
        case "thread":
            return one.conversation == other.conversation
        case "job":
            return one.job == other.job
    return not one.job and one.user == other.user


# What is used today, and of which budget, as the store tells it: the one count behind all that is shown.


def account_of(turn: TurnRow) -> BudgetAccount:
    """On whose account the turn goes."""
    return BudgetAccount(turn.user_id, turn.conversation, turn.job)


@dataclass(frozen=True, slots=True)
class Today:
    """What the runs that began today have used, and until when it is today."""

    spent: tuple[Spent, ...]
    until: datetime

    @property
    def used(self) -> DayUse:
        """All of it together."""
        all_ = sum((one.used for one in self.spent), UsageTotal())
        return DayUse(runs=all_.turns, tokens=all_.tokens, usd=all_.usd, minutes=all_.minutes)


def spent_today(uow: UnitOfWork, config: Config, account: BudgetAccount = NOBODY) -> Today:
    """Of all agents in the repository, and of what we asked of models ourselves; summed up for ``account``."""
    first, until = day_of(uow.now, zone_of(config.budget.timezone))
    spent = uow.turns.spent_between(iso(first), iso(until), account)
    return Today(tuple(one for one in spent if counts(one.agent, config)), until)


def used_today(uow: UnitOfWork, config: Config, account: BudgetAccount) -> tuple[BudgetLine, ...]:
    """Every limit that concerns the account, and how much of it is used today."""
    if not is_limited(config.budget):
        return ()
    return lines(config.budget, spent_today(uow, config, account).spent, account)


# Limits and how much of them is used, in words.


def used_up_text(line: BudgetLine) -> str:
    """Why a turn has to wait, and what could be done about it."""
    return (
        f"{WHOSE[line.scope]} budget for today is used up: {used_of(line.unit, line.used, line.limit)}. "
        f"Raise {line.key} in the configuration to continue sooner."
    )


def overview(lines: Sequence[BudgetLine]) -> str:
    """``Budget today: repository $1.20 of $5.00, 3 of 10 turns · you …``; "" without any limit."""
    shown = []
    for scope, name in _NAMES.items():
        parts = [used_of(line.unit, line.used, line.limit) for line in lines if line.scope == scope]
        if parts:
            shown.append(f"{name} {', '.join(parts)}")
    return f"Budget today: {' · '.join(shown)}" if shown else ""


# While a turn runs: what it uses is written down, and it is ended when a limit is met.


class BudgetWatch:
    """Of one turn that runs. ``met`` is the limit that was met, ``until`` when the next day begins."""

    def __init__(self, runtime: Runtime, turn: TurnRow) -> None:
        config = runtime.settings.config
        self.met: BudgetLine | None = None
        self.is_limited = is_limited(config.budget) and counts(turn.agent, config)
        self.until = runtime.clock.now()
        self._runtime = runtime
        self._turn = turn
        self._usage = Usage()
        self._others: Sequence[Spent] = ()
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
                self._others = await self._runtime.commit(self._keep)
            except StoreError as error:
                self._runtime.log("ERR", f"what a turn uses is not written down: {error}")
            self._judge()
            if self.met is None:
                await wait_for(self._runtime.clock, self._over, KEEP_S)

    def _keep(self, uow: UnitOfWork) -> list[Spent]:
        """Write down what the turn has used; returns what the others of its day have."""
        config, usage = self._runtime.settings.config, self._usage
        uow.turns.update(
            self._turn.id,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_usd=usage.cost_usd,
            agent_turns=usage.turns,
            worked_s=self.worked_s,
        )
        first, self.until = self._day()
        others = uow.turns.spent_between(
            iso(first), iso(self.until), account_of(self._turn), without=self._turn.id
        )
        return [one for one in others if counts(one.agent, config)]

    def _judge(self) -> None:
        usage = self._usage
        tokens = usage.input_tokens + usage.output_tokens
        account = account_of(self._turn)
        own = Spent(
            self._turn.agent, account, UsageTotal(usage.cost_usd or 0.0, tokens, 1, self.worked_s / 60)
        )
        found = lines(self._runtime.settings.config.budget, [*self._others, own], account)
        # That it is the last one allowed is no reason to end it.
        self.met = used_up([line for line in found if line.unit != "turns"])
        if self.met is not None:
            self._over.set()

    def _day(self) -> tuple[datetime, datetime]:
        """The day on which the turn began."""
        began = self._turn.started_at
        moment = datetime.fromisoformat(began) if began else self._runtime.clock.now()
        return day_of(moment, zone_of(self._runtime.settings.config.budget.timezone))
