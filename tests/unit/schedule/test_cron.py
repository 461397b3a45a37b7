"""Cron lines as cron reads them, through summer time and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.domain.clock import zone_of
from codebutler.schedule.cron import parse

BERLIN = ZoneInfo("Europe/Berlin")


def times(line: str, start: str, count: int, zone: ZoneInfo = BERLIN) -> list[str]:
    cron, moment, found = parse(line, zone), datetime.fromisoformat(start), []
    for _ in range(count):
        after = cron.after(moment)
        assert after is not None
        moment = after
        found.append(moment.astimezone(zone).strftime("%a %d %H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 9 * * 1-5", ["Mon 23 09:00+0100", "Tue 24 09:00+0100"]),
        ("0 9 * * 0", ["Sun 22 09:00+0100", "Sun 29 09:00+0100"]),
        ("0 9 * * 7", ["Sun 22 09:00+0100", "Sun 29 09:00+0100"]),
        ("0 9 * * sun", ["Sun 22 09:00+0100", "Sun 29 09:00+0100"]),
        ("0 9 * * 5-1/2", ["Sun 22 09:00+0100", "Fri 27 09:00+0100"]),
        ("0 9 * * */3", ["Sat 21 09:00+0100", "Sun 22 09:00+0100"]),
        ("0 9 24 * sun", ["Sun 22 09:00+0100", "Tue 24 09:00+0100"]),
        ("*/20 9 * * *", ["Sat 21 09:00+0100", "Sat 21 09:20+0100"]),
        ("@daily", ["Sun 22 00:00+0100", "Mon 23 00:00+0100"]),
    ],
)
def test_a_line_means_what_cron_means_by_it(line: str, expected: list[str]) -> None:
    assert times(line, "2026-11-21T00:10:00+00:00", 2) == expected


def test_a_fixed_hour_comes_once_when_summer_time_ends() -> None:
    assert times("30 2 * * *", "2026-10-24T12:00:00+00:00", 2) == ["Sun 25 02:30+0200", "Mon 26 02:30+0100"]


def test_each_half_hour_goes_on_through_the_hour_that_comes_twice() -> None:
    found = times("*/30 * * * *", "2026-10-24T23:40:00+00:00", 5)
    assert found == [
        "Sun 25 02:00+0200",
        "Sun 25 02:30+0200",
        "Sun 25 02:00+0100",
        "Sun 25 02:30+0100",
        "Sun 25 03:00+0100",
    ]


def test_an_hour_that_summer_time_takes_away_is_not_left_out() -> None:
    assert times("30 2 * * *", "2026-03-28T12:00:00+00:00", 2) == ["Sun 29 03:30+0200", "Mon 30 02:30+0200"]


@pytest.mark.parametrize(
    "line", ["", "* * * *", "* * * * * *", "61 * * * *", "* * * * 8", "* * * * mo", "x y z a b", "@never"]
)
def test_what_is_no_cron_line_is_refused_in_one_line(line: str) -> None:
    with pytest.raises(ValueError, match="is not a cron line") as refused:
        parse(line, BERLIN)
    assert "\n" not in str(refused.value)


def test_what_never_comes_never_comes() -> None:
    assert parse("0 0 31 2 *", BERLIN).after(datetime(2026, 1, 1, tzinfo=UTC)) is None


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown time zone"):
        zone_of("Mars/Olympus")


@given(
    st.sampled_from(["*/7 * * * *", "30 2 * * *", "0 0 * * *", "15 1-3 * * *", "0 3 1 * 1"]),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)),  # noqa: DTZ001 - hypothesis wants them naive
)
def test_the_next_time_is_always_later_and_on_the_minute(line: str, moment: datetime) -> None:
    start = moment.replace(tzinfo=UTC)
    after = parse(line, BERLIN).after(start)
    assert after is not None
    assert start < after <= start + timedelta(days=32)
    assert (after.second, after.microsecond) == (0, 0)
