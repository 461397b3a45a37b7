"""Sums of the ledger's rows: in total, by day, repository, person and agent. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from types import MappingProxyType

from codebutler.observe.ledger import Period, day_of
from codebutler.protocol.messages import MAX_COUNT, DayUse
from codebutler.protocol.runs import LedgerRow
from codebutler.text.amounts import amount


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
