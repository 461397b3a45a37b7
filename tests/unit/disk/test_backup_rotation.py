"""Which backups are kept and which one is restored, decided from their days alone."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from codebutler.platform.backups import KEPT, best_first, directory_name, surplus

TODAY = date(2026, 3, 10)
DAYS = st.sets(st.dates(date(2026, 1, 1), date(2026, 12, 31)), max_size=30)


def test_the_newest_is_the_best() -> None:
    days = [date(2026, 3, 1), date(2026, 3, 9), TODAY, date(2025, 12, 31)]
    assert best_first(days, TODAY) == [TODAY, date(2026, 3, 9), date(2026, 3, 1), date(2025, 12, 31)]


def test_a_day_that_has_not_come_yet_is_the_last_resort() -> None:
    """The clock was wrong when it was taken: what it holds may be old."""
    ahead = date(2027, 1, 1)
    assert best_first([ahead, TODAY], TODAY) == [TODAY, ahead]
    assert best_first([ahead], TODAY) == [ahead]


def test_seven_are_kept() -> None:
    days = [TODAY - timedelta(days=number) for number in range(10)]
    assert surplus(days, TODAY) == days[7:]
    assert surplus(days[:7], TODAY) == []


@given(DAYS)
def test_the_best_is_never_dropped_and_never_more_are_kept(days: set[date]) -> None:
    dropped = set(surplus(days, TODAY))
    kept = days - dropped
    assert dropped <= days
    assert len(kept) == min(len(days), KEPT)
    assert not days or best_first(days, TODAY)[0] in kept


def test_no_two_repositories_share_their_backups() -> None:
    names = {directory_name("app", Path(path)) for path in ("/a/app", "/b/app", "/a/app2")}
    assert len(names) == 3
    assert directory_name("app", Path("/a/app")) == directory_name("app", Path("/a/app"))
