"""What all repositories but one have used. It is needed for each of them after each change, so the sum is made once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

from codebutler.config.schema import Config
from codebutler.domain.clock import zone_of
from codebutler.intake.repos import RepoTable
from codebutler.observe.ledger import together
from codebutler.protocol.messages import MAX_COUNT, DayUse

Days = Mapping[date, DayUse]
Exact = tuple[int, int, int, int]
"""Runs, tokens, and dollars and minutes in billionths: whole numbers, so that subtracting one repository from the sum
is exact."""
BILLION = 10**9
NONE: Exact = (0, 0, 0, 0)
NO_DAYS: Days = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Account:
    """A registered repository, and how its use is counted. ``is_remote``: its store is on a host."""

    name: str
    path: Path
    config: Config
    is_remote: bool = False

    def today(self, now: datetime) -> date:
        """The current date in its time zone."""
        return now.astimezone(zone_of(self.config.budget.timezone)).date()


def accounts_of(table: RepoTable) -> Mapping[str, Account]:
    """All registered repositories, by name. Pure."""
    served = [(each.entry, each.config) for each in table.served]
    absent = [(each.entry, table.config) for each in table.absent]
    return {
        entry.name: Account(entry.name, Path(entry.path), config, bool(entry.host))
        for entry, config in (*served, *absent)
    }


def between(days: Days, today: date, count: int) -> DayUse:
    """The sum over this many days, of which ``today`` is the last. Pure."""
    return together(days[day] for number in range(count) if (day := today - timedelta(days=number)) in days)


class TotalSums:
    """The sums of the repositories in ``table``. ``days``: what each has used by day; a change replaces its mapping."""

    def __init__(self, table: Callable[[], RepoTable], days: Callable[[str], Days]) -> None:
        self._table = table
        self._days = days
        self._made_of: RepoTable | None = None
        self._made_at: datetime | None = None
        self._accounts: Mapping[str, Account] = {}
        self._own: dict[str, tuple[Days, date, Exact, Exact]] = {}
        self._day = self._month = NONE

    def changed(self) -> None:
        """Something was used: the sums must be made again."""
        self._made_at = None

    @property
    def accounts(self) -> Mapping[str, Account]:
        """All repositories, by name."""
        table = self._table()
        if table is not self._made_of:
            self._accounts, self._made_of, self._made_at = accounts_of(table), table, None
        return self._accounts

    def others(self, name: str, now: datetime) -> tuple[DayUse, DayUse]:
        """What all other repositories have used on their current day, and in this one's month."""
        accounts, minute = self.accounts, now.replace(second=0, microsecond=0)
        if self._made_at != minute:  # one of the repositories may have begun a new day
            self._own = {name: self._sums(each, now) for name, each in accounts.items()}
            self._day = _sum(day for _, _, day, _ in self._own.values())
            self._month = _sum(month for _, _, _, month in self._own.values())
            self._made_at = minute
        _, _, day, month = self._own.get(name, (NO_DAYS, now.date(), NONE, NONE))
        return _without(self._day, day), _without(self._month, month)

    def _sums(self, account: Account, now: datetime) -> tuple[Days, date, Exact, Exact]:
        days, today = self._days(account.name), account.today(now)
        known = self._own.get(account.name)
        if known is not None and known[0] is days and known[1] == today:
            return known
        return days, today, _exact(between(days, today, 1)), _exact(between(days, today, today.day))


def _exact(use: DayUse) -> Exact:
    return use.runs, use.tokens, round(use.usd * BILLION), round(use.minutes * BILLION)


def _sum(amounts: Iterable[Exact]) -> Exact:
    runs, tokens, usd, minutes = (sum(each) for each in zip(NONE, *amounts, strict=True))
    return runs, tokens, usd, minutes


def _without(all_of_them: Exact, own: Exact) -> DayUse:
    """Clamped to a message's limits: one repository's wrong numbers must not stop another."""
    runs, tokens, usd, minutes = (total - each for total, each in zip(all_of_them, own, strict=True))
    return DayUse(
        runs=min(runs, MAX_COUNT),
        tokens=min(tokens, 10**15),
        usd=min(usd / BILLION, 1e15),
        minutes=min(minutes / BILLION, 1e15),
    )
