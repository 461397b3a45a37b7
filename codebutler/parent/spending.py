"""What every repository uses, day by day: for the budget of all together, and for people who ask.

Read from the stores: all of them before the first worker starts, then each again whenever its worker reports use. So a
restart forgets nothing, and two repositories that report at once are both counted. Hosts report the use of theirs,
which is noted for the next gateway. What all repositories but one have used is needed for each of them after each
change, so that sum is made once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import msgspec
from msgspec import Struct

from codebutler.config.programs import uses_model
from codebutler.config.schema import Config, RepoSettings
from codebutler.domain.clock import Clock, zone_of
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler.intake.records import Notes
from codebutler.intake.repos import RepoTable, Served
from codebutler.observe.hosted_runs import HostedRuns
from codebutler.observe.ledger import Period, begin_of, read, together, used
from codebutler.platform.tasks import Observers, wait_for
from codebutler.protocol.capabilities import LedgerRow
from codebutler.protocol.messages import MAX_COUNT, DayUse, LogTag, TotalUse

Days = Mapping[date, DayUse]
Exact = tuple[int, int, int, int]
"""Runs, tokens, and dollars and minutes in billionths: whole numbers, so that subtracting one repository from the sum
is exact."""
BILLION = 10**9
NONE: Exact = (0, 0, 0, 0)
NO_DAYS: Days = MappingProxyType({})
WEEK_DAYS = 7
LOOK_AGAIN_S = 60.0
REST_S = 1.0
"""The longest time between two reads of a repository whose runs have changed."""
REST = 50
"""After a read, wait this many times the processor time it took: it adds up all runs of the day."""
"""The longest sleep before the clock is checked again: it may be set, and the machine may sleep."""
Record = Callable[[str, LogTag, str], None]


class Account(Struct, frozen=True):
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


class Spending:
    """The use of all repositories by day: ``load`` once, then ``run``. ``changed`` is notified after each change."""

    def __init__(
        self, table: Callable[[], RepoTable], clock: Clock, record: Record, notes: Notes | None = None
    ) -> None:
        self.changed = Observers[()]()
        self._clock = clock
        self._record = record
        self._notes = notes
        self._days: dict[str, dict[date, DayUse]] = {}
        self._sums = TotalSums(table, self.days)
        self.changed.add(self._sums.changed)
        self._read_on: dict[str, date] = {}
        self._unread: set[str] = set()
        self._due: dict[str, None] = {}
        self._rests_until_s: dict[str, float] = {}
        self._news = asyncio.Event()

    async def load(self) -> None:
        """Read every store."""
        accounts = self._sums.accounts.values()
        await asyncio.gather(*(self._look(each) for each in accounts if each.is_remote))
        for account in accounts:
            if not account.is_remote:
                await self._look(account)

    def reported(self, repo: str) -> None:
        """Its worker reports new use."""
        self._due[repo] = None
        self._news.set()

    def days(self, repo: str) -> Mapping[date, DayUse]:
        """What a repository used on each day of this month and of the last week."""
        return self._days.get(repo, NO_DAYS)

    async def take(self, repo: str, days: Mapping[str, DayUse]) -> None:
        """Its host reports this use. Raises StoreError, and CodeButlerError for an invalid date."""
        try:
            known = {date.fromisoformat(day): use for day, use in days.items()}
        except ValueError as error:
            raise CodeButlerError(f"cannot read the usage of {repo}: {error}") from None
        if self._notes is not None:
            await self._notes.keep_note(_note(repo), msgspec.json.encode(days).decode())
        self._days[repo] = known
        self.changed.tell()

    async def run(self) -> None:
        """Read reported changes and new days, until cancelled."""
        while True:
            await wait_for(self._clock, self._news, min(map(self._rest_s, self._due), default=LOOK_AGAIN_S))
            self._news.clear()
            accounts, now = self._sums.accounts, self._clock.now()
            due = [name for name in self._due if not self._rest_s(name)]
            new = [name for name, each in accounts.items() if self._read_on.get(name) != each.today(now)]
            for name in dict.fromkeys((*due, *new)):
                self._due.pop(name, None)
                if name in accounts:
                    rest_s = min(REST * await self._look(accounts[name]), REST_S)
                    self._rests_until_s[name] = self._clock.monotonic() + rest_s
            if due or new:
                self.changed.tell()

    def _rest_s(self, repo: str) -> float:
        return max(0.0, self._rests_until_s.get(repo, 0.0) - self._clock.monotonic())

    def week(self, repo: str) -> DayUse:
        """What a repository used in the last seven days."""
        account = self._sums.accounts.get(repo)
        if account is None:
            return DayUse()
        return between(self.days(repo), account.today(self._clock.now()), WEEK_DAYS)

    def total(self, repo: RepoSettings) -> TotalUse:
        """What all other repositories have used on this one's current day, and in its month."""
        now = self._clock.now()
        zone = zone_of(repo.config.budget.timezone)
        today = now.astimezone(zone).date()
        next_month = (today.replace(day=1) + timedelta(days=31)).replace(day=1)
        day, month = self._sums.others(repo.name, now)
        return TotalUse(
            day=day,
            until=begin_of(today + timedelta(days=1), zone),
            month=month,
            month_until=begin_of(next_month, zone),
        )

    async def _recall(self, account: Account) -> None:
        """What its host has reported to an earlier gateway."""
        if account.name not in self._days and self._notes is not None:
            try:
                note = await self._notes.note(_note(account.name))
            except StoreError as error:
                self._record(account.name, "WRN", f"its usage is not known exactly: {error}")
                return
            known = msgspec.json.decode(note, type=dict[date, DayUse]) if note else {}
            self._days.setdefault(account.name, known)
        self._read_on[account.name] = account.today(self._clock.now())

    async def _look(self, account: Account) -> float:
        """Read its daily use: all of this month and the last week, or only the days that may change if that was done
        today. Returns the processor time that it took, in seconds."""
        if account.is_remote:
            await self._recall(account)
            return 0.0
        zone, today = zone_of(account.config.budget.timezone), account.today(self._clock.now())
        first = min(today.replace(day=1), today - timedelta(days=WEEK_DAYS - 1))
        known = self._days.get(account.name, {})
        since = first
        if self._read_on.get(account.name) == today:
            since = today - timedelta(days=1)
        during = Period(since, today + timedelta(days=1), zone)
        try:
            days, took_s = await asyncio.to_thread(_used, account.path, during)
        except StoreError as error:
            if account.name not in self._unread:
                self._unread.add(account.name)
                self._record(account.name, "WRN", f"its usage is not known exactly: {error}")
            return 0.0
        self._unread.discard(account.name)
        kept = {day: use for day, use in known.items() if first <= day < since}
        self._days[account.name] = kept | {
            day: together(use for agent, use in agents.items() if uses_model(account.config, agent))
            for day, agents in days.items()
        }
        self._read_on[account.name] = today
        return took_s


def _note(repo: str) -> str:
    return f"use of {repo}"


def _used(path: Path, during: Period) -> tuple[dict[date, dict[str, DayUse]], float]:
    """The daily use, and the processor time that reading it took, in seconds."""
    began_s = time.thread_time()
    return used(path, during), time.thread_time() - began_s


class Ledgers:
    """The ledger's rows (runs that called a model) of the served repositories, read on demand. ``hosted``: those of
    hosts."""

    def __init__(
        self,
        table: Callable[[], RepoTable],
        clock: Clock,
        record: Record,
        hosted: HostedRuns | None = None,
    ) -> None:
        self._table = table
        self._hosted = hosted
        self._clock = clock
        self._record = record

    @property
    def names(self) -> list[str]:
        """The names of the repositories."""
        return [each.entry.name for each in self._table().served]

    def days(self, count: int, repo: str = "") -> Period:
        """This many days of a repository, or by the home's configuration; today is the last."""
        served = self._table().named(repo)
        zone = zone_of((served.config if served else self._table().config).budget.timezone)
        today = self._clock.now().astimezone(zone).date()
        return Period(today - timedelta(days=count - 1), today + timedelta(days=1), zone)

    async def rows(self, during: Period, names: Iterable[str]) -> list[LedgerRow]:
        """The rows of these repositories, oldest first. A repository that cannot be read is logged and left out."""
        found: list[LedgerRow] = []
        for name in names:
            served = self._table().named(name)
            if served is None:
                continue
            try:
                found += await asyncio.to_thread(self._read, served, during)
            except StoreError as error:
                self._record(name, "WRN", f"cannot read its ledger: {error}")
        return sorted(found, key=lambda row: row.at)

    def _read(self, served: Served, during: Period) -> list[LedgerRow]:
        entry = served.entry
        if entry.host:
            return self._hosted.read(entry.name, during, programs=False) if self._hosted else []
        rows = read(entry.name, Path(entry.path), during)
        return [row for row in rows if uses_model(served.config, row.agent)]
