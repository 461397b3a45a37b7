"""What the parent knows of budgets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from codebutler.parent.parts import Budgets
from codebutler.protocol.messages import Budget, DayUse, LimitUse
from codebutler.text.wording import Unit, amount

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIMITS = (LimitUse(unit="usd", used=1.2, limit=5.0), LimitUse(unit="minutes", used=61.0, limit=90.0))


def test_the_newest_word_of_a_worker_counts_until_its_day_is_over() -> None:
    budgets = Budgets()
    assert budgets.words("shop", NOW) == ""
    used = DayUse(runs=3, tokens=12_345, usd=1.2, minutes=61.0)
    budgets.told["shop"] = Budget(limits=LIMITS, until=(NOW + timedelta(hours=12)).isoformat(), used=used)
    assert budgets.words("shop", NOW) == "3 runs, 12.3k tokens, $1.20 of $5.00, 1h01m of 1h30m"
    assert budgets.words("shop", NOW + timedelta(hours=12)) == "0 runs, $0.00 of $5.00, 0 min of 1h30m"
    assert budgets.today("blog", NOW) is None


@pytest.mark.parametrize("until", ["", "tomorrow", "2026-01-02T00:00:00"])
def test_a_worker_that_tells_nonsense_tells_nothing(until: str) -> None:
    budgets = Budgets()
    budgets.told["shop"] = Budget(limits=LIMITS, until=until)
    assert budgets.today("shop", NOW) is None


@pytest.mark.parametrize(
    ("unit", "number", "words"),
    [
        ("usd", 0.001, "<$0.01"),
        ("usd", 0.0, "$0.00"),
        ("tokens", 950, "950 tokens"),
        ("tokens", 1_250_000, "1.2M tokens"),
        ("turns", 1, "1 run"),
        ("turns", 20, "20 runs"),
        ("minutes", 2.5, "2.5 min"),
        ("minutes", 0.15, "9 s"),
        ("minutes", 0.001, "1 s"),
        ("minutes", 0, "0 min"),
        ("minutes", 125, "2h05m"),
    ],
)
def test_amounts(unit: Unit, number: float, words: str) -> None:
    assert amount(unit, number) == words
