"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from codebutler.schedule.commands import split_at, split_in, when

NOW = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "delta", "what"),
    [
        ("2h check the deploy", timedelta(hours=2), "check the deploy"),
        ("2h30m x", timedelta(hours=2, minutes=30), "x"),
        ("90 minutes 3 things", timedelta(minutes=90), "3 things"),
        ("1d 2 hours\nrun: make", timedelta(days=1, hours=2), "run: make"),
    ],
)
def test_in_a_while(text: str, delta: timedelta, what: str) -> None:
    assert split_in(text, NOW) == (NOW + delta, what)


@pytest.mark.parametrize("text", ["", "2h", "soon x", "0m x", "999999d x", f"{'999999d' * 300} x", "h x"])
def test_no_such_while(text: str) -> None:
    with pytest.raises(ValueError, match=r"Use `!in|more than a year"):
        split_in(text, NOW)


@pytest.mark.parametrize(
    ("text", "expected", "what"),
    [
        ("18:00 look", datetime(2026, 11, 21, 17, 0, tzinfo=UTC), "look"),
        ("9:30 look", datetime(2026, 11, 22, 8, 30, tzinfo=UTC), "look"),
        ("2026-12-24 18:00 rest", datetime(2026, 12, 24, 17, 0, tzinfo=UTC), "rest"),
    ],
)
def test_at_a_time(text: str, expected: datetime, what: str) -> None:
    assert split_at(text, NOW, BERLIN) == (expected, what)


@pytest.mark.parametrize(
    "text", ["", "18:00", "25:00 x", "2026-02-30 10:00 x", "2026-01-01 10:00 x", "2099-01-01 10:00 x"]
)
def test_no_such_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"Use `!at|not a valid time|already passed|more than a year"):
        split_at(text, NOW, BERLIN)


def test_the_end_of_the_calendar_is_too_far_west_of_greenwich_too() -> None:
    with pytest.raises(ValueError, match="more than a year"):
        split_at("9999-12-31 23:59 x", NOW, ZoneInfo("America/New_York"))


def test_a_moment_is_told_as_people_say_it() -> None:
    assert when(NOW, NOW, BERLIN) == "at 11:00"
    assert when(NOW + timedelta(days=1), NOW, BERLIN) == "tomorrow at 11:00"
    assert when(NOW + timedelta(days=3), NOW, BERLIN) == "on 2026-11-24 at 11:00"
