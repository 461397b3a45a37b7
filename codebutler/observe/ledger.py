"""The run ledger: the outcome and cost of each run, from the repositories' stores; and sums: in total, by day,
repository, person and agent.

A store is read whether or not its worker runs: nothing is written, and an older store is read as it is. The rows are
the runs' own, so the ledger cannot disagree with them.
"""

from __future__ import annotations

import math
import re
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec import Struct

from codebutler.config.chats import message_url
from codebutler.config.paths import RepoPaths
from codebutler.domain.errors import StoreDamagedError
from codebutler.domain.refs import NO_PERSON, ConversationRef, PersonRef
from codebutler.platform import sqlitefile
from codebutler.protocol.capabilities import LedgerRow
from codebutler.protocol.messages import MAX_COUNT, DayUse
from codebutler.text.wording import amount

UNDER_WAY = ("queued", "running", "waiting")
CONTINUED = "continued"
"""The outcome of a run that another one continued; the store's reason for ending it."""
MAX_DAYS = 3650
LAST = "9999"
"""Sorts after every moment."""
MAX_NUMBER = 1e15
T = TypeVar("T")
_PERIOD = re.compile(r"(?P<days>[1-9][0-9]{0,3})d|(?P<date>[12][0-9]{3}-[0-9]{2}-[0-9]{2})")
_TEXTS = (
    "id", "started_at", "finished_at", "user_id", "job", "agent", "model", "session_id", "state", "reason", "commits",
    "checks", "channel_id", "thread", "tree_before", "tree_after",
)  # fmt: skip
_NUMBERS = ("input_tokens", "output_tokens", "cost_usd", "worked_s", "files")


class Period(Struct, frozen=True):
    """From the start of ``first`` to the start of ``until``, both days of ``zone``."""

    first: date
    until: date
    zone: tzinfo

    @property
    def ends(self) -> tuple[str, str]:
        """Its start and end, as stores write moments."""
        return begin_of(self.first, self.zone), begin_of(self.until, self.zone)

    @property
    def days(self) -> list[date]:
        """Every day of it."""
        return [self.first + timedelta(days=number) for number in range((self.until - self.first).days)]


def period(since: str, until: str, now: datetime, zone: tzinfo) -> Period:
    """``since``: a date, or a number of days up to today (``7d``); ``until``: the last day, "" = today. Raises
    ValueError with one line that says what is expected."""
    today = now.astimezone(zone).date()
    last = _day(until, today) if until else today
    first = _day(since, last)
    if first > last:
        raise ValueError(f"{first} is after {last}")
    if (last - first).days >= MAX_DAYS:
        raise ValueError(f"the ledger shows at most {MAX_DAYS} days at once")
    return Period(first, last + timedelta(days=1), zone)


def _day(text: str, last: date) -> date:
    found = _PERIOD.fullmatch(text.strip())
    try:
        if found and found["days"]:
            return last - timedelta(days=int(found["days"]) - 1)
        if found:
            return date.fromisoformat(found["date"])
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"{text!r} is neither a date like 2026-02-14 nor a number of days like 7d")


def day_of(moment: str, zone: tzinfo) -> date:
    """The day of ``zone`` to which a stored moment belongs."""
    return datetime.fromisoformat(moment).astimezone(zone).date()


def begin_of(day: date, zone: tzinfo) -> str:
    """The moment at which a day begins, as stores write it."""
    return datetime.combine(day, time(), zone).astimezone(UTC).isoformat(timespec="microseconds")


# Reading.


def read(repo: str, path: Path, during: Period) -> list[LedgerRow]:
    """Runs that started in the period and ended, oldest first. ``path``: the repository. Blocks.

    Nothing for a repository without a store. Raises StoreError.
    """

    def ask(connection: sqlite3.Connection) -> list[LedgerRow]:
        ends = during.ends
        return [*_turns(connection, repo, "started_at", ends), *_expenses(connection, repo, ends)]

    return sorted(_answer(path, ask) or [], key=lambda row: row.at)


def ended_since(repo: str, path: Path, moment: str, most: int) -> list[LedgerRow]:
    """Runs and requests that ended at ``moment`` (as stores write it, "" = ever) or later, in that order: the first
    ``most`` of them. Blocks. Raises StoreError."""

    def ask(connection: sqlite3.Connection) -> list[LedgerRow]:
        ends = (moment, LAST)
        runs = islice(_turns(connection, repo, "finished_at", ends), most)
        return [*runs, *islice(_expenses(connection, repo, ends), most)]

    return sorted(_answer(path, ask) or [], key=lambda row: row.ended)[:most]


def used(path: Path, during: Period) -> dict[date, dict[str, DayUse]]:
    """The use of each day by agent, including running ones. SQLite adds it up: a day may have thousands of runs, and
    this is called after each. Blocks. Raises StoreError."""

    def ask(connection: sqlite3.Connection) -> dict[date, dict[str, DayUse]]:
        return {
            day: _day_use(connection, Period(day, day + timedelta(days=1), during.zone))
            for day in during.days
        }

    return _answer(path, ask) or {}


def _answer(path: Path, ask: Callable[[sqlite3.Connection], T]) -> T | None:
    """What ``ask`` finds in the repository's store, None without one. Raises StoreError."""
    paths = RepoPaths(path)
    store = paths.store
    try:
        # A link could lead anywhere: the repository's content may have put it there.
        if not stat.S_ISDIR(paths.root.lstat().st_mode) or not sqlitefile.exists(store):
            return None
        with closing(sqlitefile.attach(store, writable=not sqlitefile.is_open(store))) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.row_factory = sqlite3.Row
            return ask(connection)
    except FileNotFoundError:
        return None
    except (sqlite3.Error, OSError) as error:
        raise sqlitefile.store_error(store, error) from error
    except (ValueError, TypeError, OverflowError) as error:
        raise StoreDamagedError(f"{store}: its rows cannot be read: {error}") from error


def _turns(
    connection: sqlite3.Connection, repo: str, moment: str, ends: tuple[str, str]
) -> Iterator[LedgerRow]:
    for row in _rows(connection, "turns", moment, ends, (*_TEXTS, *_NUMBERS)):
        text = {name: _text(row[name]) for name in _TEXTS}
        if text["state"] in UNDER_WAY or not text["started_at"]:
            continue
        continued = text["state"] == "stopped" and text["reason"] == CONTINUED
        files = None if row["files"] is None else _count(row["files"])
        if files is None and text["tree_before"] and text["tree_before"] == text["tree_after"]:
            files = 0
        yield LedgerRow(
            repo=repo,
            run=text["id"],
            at=as_moment(text["started_at"]),
            ended=text["finished_at"],
            user=PersonRef(text["user_id"]),
            job=text["job"],
            agent=text["agent"],
            model=text["model"],
            session=text["session_id"],
            outcome=CONTINUED if continued else text["state"],
            input_tokens=_count(row["input_tokens"]),
            output_tokens=_count(row["output_tokens"]),
            cost_usd=_cost(row["cost_usd"]),
            duration_s=_number(row["worked_s"]),
            files=files,
            commits=tuple(text["commits"].split()),
            checks=text["checks"],
            channel=ConversationRef(text["channel_id"]),
            thread=text["thread"],
            link=message_url(ConversationRef(text["channel_id"]), text["thread"]) if text["thread"] else "",
        )


def _expenses(connection: sqlite3.Connection, repo: str, ends: tuple[str, str]) -> Iterator[LedgerRow]:
    """Our own model requests."""
    names = ("purpose", "conversation", "model", "input_tokens", "output_tokens", "cost_usd", "at")
    for row in _rows(connection, "expenses", "at", ends, names):
        channel, _, thread = _text(row["conversation"]).rpartition(":")
        yield LedgerRow(
            repo=repo,
            run="",
            at=as_moment(row["at"]),
            ended=_text(row["at"]),
            user=NO_PERSON,
            job="",
            agent=_text(row["purpose"]),
            model=_text(row["model"]),
            session="",
            outcome="done",
            input_tokens=_count(row["input_tokens"]),
            output_tokens=_count(row["output_tokens"]),
            cost_usd=_cost(row["cost_usd"]),
            duration_s=0.0,
            files=0,
            commits=(),
            checks="",
            channel=ConversationRef(channel),
            thread=thread,
            link=message_url(ConversationRef(channel), thread) if thread else "",
        )


def _rows(
    connection: sqlite3.Connection,
    table: str,
    moment: str,
    ends: tuple[str, str],
    names: Iterable[str],
) -> Iterable[sqlite3.Row]:
    """Rows of one of our tables; a column that an older store lacks is NULL."""
    known = _columns(connection, table)
    if moment not in known:
        return ()
    # The names are our own constants.
    columns = ", ".join(name if name in known else f"NULL AS {name}" for name in names)
    query = f"SELECT {columns} FROM {table} WHERE {moment} >= ? AND {moment} < ? ORDER BY {moment}, rowid"  # noqa: S608 - constants
    return connection.execute(query, ends)


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Those of one of our tables; none if it is a view, or missing."""
    found = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchall()
    if [kind for (kind,) in found] != ["table"]:
        return set()
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}


def _day_use(connection: sqlite3.Connection, day: Period) -> dict[str, DayUse]:
    """The sums of a day by agent."""
    found = {
        name: DayUse(runs=runs, tokens=tokens, usd=usd, minutes=worked_s / 60)
        for name, runs, tokens, usd, worked_s in _sums(connection, "turns", "started_at", "agent", day)
    }
    own = _sums(connection, "expenses", "at", "purpose", day)
    return found | {name: DayUse(tokens=tokens, usd=usd) for name, _, tokens, usd, _ in own}


def _sums(
    connection: sqlite3.Connection, table: str, moment: str, name: str, day: Period
) -> Iterator[tuple[str, int, int, float, float]]:
    """(name, rows, tokens, USD, seconds), clamped to the limits of messages."""
    known = _columns(connection, table)
    if not {moment, name} <= known:
        return
    amounts = ("input_tokens", "output_tokens", "cost_usd", "worked_s")
    # The names are our own constants. In case the store is hostile: total() never overflows, and texts are not numbers.
    totals = ", ".join(
        f"total(min(max(CAST({each} AS REAL), 0), {MAX_NUMBER}))" if each in known else "0.0"
        for each in amounts
    )
    query = (
        f"SELECT {name}, count(*), {totals} FROM {table} "  # noqa: S608
        f"WHERE {moment} >= ? AND {moment} < ? GROUP BY {name}"
    )
    for found, rows, given, answered, usd, worked_s in connection.execute(query, day.ends):
        tokens = min(int(given) + int(answered), int(MAX_NUMBER))
        yield _text(found), min(rows, MAX_COUNT), tokens, min(usd, MAX_NUMBER), min(worked_s, MAX_NUMBER)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_moment(value: Any) -> str:
    """A stored moment, in UTC. Raises ValueError, OverflowError."""
    return datetime.fromisoformat(_text(value)).astimezone(UTC).isoformat(timespec="microseconds")


def _number(value: Any) -> float:
    """A column's value: never negative, and clamped to the limits of messages."""
    number = float(value or 0)
    return min(number, MAX_NUMBER) if number > 0 else 0.0


def _count(value: Any) -> int:
    return int(_number(value))


def _cost(value: Any) -> float | None:
    return None if value is None else _number(value)


def total(rows: Iterable[LedgerRow]) -> DayUse:
    """What they used together."""
    return together(
        DayUse(
            runs=bool(row.run),
            tokens=row.input_tokens + row.output_tokens,
            usd=row.cost_usd or 0.0,
            minutes=row.duration_s / 60,
        )
        for row in rows
    )


def together(uses: Iterable[DayUse]) -> DayUse:
    """Their sum, clamped to a message's limits: one repository's wrong numbers must not stop another."""
    found = [*uses]
    return DayUse(
        runs=min(sum(use.runs for use in found), MAX_COUNT),
        tokens=min(sum(use.tokens for use in found), 10**15),
        usd=min(math.fsum(use.usd for use in found), 1e15),
        minutes=min(math.fsum(use.minutes for use in found), 1e15),
    )


KEYS: Mapping[str, Callable[[LedgerRow], str]] = MappingProxyType(
    {
        "repository": lambda row: row.repo,
        "person": lambda row: f"job {row.job}" if row.job else row.user or row.agent,
        "agent": lambda row: row.agent,
    }
)
"""The keys for sums. A job's runs belong to nobody."""


def sums(rows: Iterable[LedgerRow], key: Callable[[LedgerRow], str]) -> dict[str, DayUse]:
    """The sums by key, the most expensive first."""
    groups: dict[str, list[LedgerRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    found = {name: total(group) for name, group in groups.items()}
    return dict(sorted(found.items(), key=lambda item: (-item[1].usd, -item[1].runs, item[0])))


def by_day(rows: Iterable[LedgerRow], during: Period) -> dict[date, DayUse]:
    """The sum of every day of the period."""
    groups: dict[date, list[LedgerRow]] = {day: [] for day in during.days}
    for row in rows:
        groups.setdefault(day_of(row.at, during.zone), []).append(row)
    return {day: total(group) for day, group in groups.items()}


def words(used: DayUse) -> str:
    """``42 runs, 1.2M tokens, $12.30, 3h05m``."""
    parts = [amount("turns", used.runs), amount("tokens", used.tokens), amount("usd", used.usd)]
    return ", ".join([*parts, amount("minutes", used.minutes)] if used.minutes else parts)
