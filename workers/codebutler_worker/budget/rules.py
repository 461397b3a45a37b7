"""What was used on a day, and which limit leaves no room for more. Pure.

Every repository counts for itself: a user's limit is what that user may use in this one. A turn belongs to the day on
which it began, and to its user unless a job asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from types import MappingProxyType
from typing import Literal, get_args

from codebutler.config.programs import program_of
from codebutler.config.schema import BudgetSection, Config, DailyLimit
from codebutler.domain.clock import zone_of
from codebutler.protocol.messages import DayUse
from codebutler.text.amounts import Unit, used_of
from codebutler_worker.desk.draft import Draft, iso
from codebutler_worker.desk.naming import UNDO
from codebutler_worker.store.rows import Account, Spent, TurnRow, Used
from codebutler_worker.store.unit_of_work import UnitOfWork

Scope = Literal["repo", "user", "thread", "job"]

SCOPES: tuple[Scope, ...] = get_args(Scope)
UNITS: tuple[Unit, ...] = get_args(Unit)


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


def lines(budget: BudgetSection, spent: Sequence[Spent], account: Account) -> tuple[BudgetLine, ...]:
    """Every limit that concerns the account, and how much of it is used."""
    found = []
    for scope in SCOPES:
        limits = _limits(getattr(budget, scope))
        if not limits or not _concerns(scope, account):
            continue
        used = sum((one.used for one in spent if _same(scope, one.account, account)), Used())
        found += [BudgetLine(scope, unit, getattr(used, unit), limit) for unit, limit in limits]
    return tuple(found)


def used_up(lines: Sequence[BudgetLine]) -> BudgetLine | None:
    """The first limit that leaves no room, None if all do."""
    return next((line for line in lines if line.is_used_up), None)


def _limits(limit: DailyLimit) -> list[tuple[Unit, float]]:
    values = ((unit, getattr(limit, f"{unit}_per_day")) for unit in UNITS)
    return [(unit, value) for unit, value in values if value is not None]


def _concerns(scope: Scope, account: Account) -> bool:
    match scope:
        case "job":
            return bool(account.job)
        case "user":
            return not account.job
    return True


def _same(scope: Scope, one: Account, other: Account) -> bool:
    match scope:
        case "repo":
            return True
        case "thread":
            return one.conversation == other.conversation
        case "job":
            return one.job == other.job
    return not one.job and one.user == other.user


# What is used today, and of which budget, as the store tells it: the one count behind all that is shown.

# For what counts for the whole repository.
NOBODY = Account("", "")


def account_of(turn: TurnRow) -> Account:
    """On whose account the turn goes."""
    return Account(turn.user_id, turn.conversation, turn.job)


@dataclass(frozen=True, slots=True)
class Today:
    """What the runs that began today have used, and until when it is today."""

    spent: tuple[Spent, ...]
    until: datetime

    @property
    def used(self) -> DayUse:
        """All of it together."""
        all_ = sum((one.used for one in self.spent), Used())
        return DayUse(runs=all_.turns, tokens=all_.tokens, usd=all_.usd, minutes=all_.minutes)


def spent_today(uow: UnitOfWork, now: datetime, config: Config, account: Account = NOBODY) -> Today:
    """Of all agents in the repository, and of what we asked of models ourselves; summed up for ``account``."""
    first, until = day_of(now, zone_of(config.budget.timezone))
    spent = uow.turns.spent_between(iso(first), iso(until), account)
    return Today(tuple(one for one in spent if counts(one.agent, config)), until)


def used_today(draft: Draft, config: Config, account: Account) -> tuple[BudgetLine, ...]:
    """Every limit that concerns the account, and how much of it is used today."""
    if not is_limited(config.budget):
        return ()
    return lines(config.budget, spent_today(draft.uow, draft.now, config, account).spent, account)


# Limits and how much of them is used, in words.

WHOSE: Mapping[Scope, str] = MappingProxyType(
    {"repo": "This repository's", "user": "Your", "thread": "This thread's", "job": "This job's"}
)
_NAMES: Mapping[Scope, str] = MappingProxyType(
    {"repo": "repository", "user": "you", "thread": "this thread", "job": "this job"}
)


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
