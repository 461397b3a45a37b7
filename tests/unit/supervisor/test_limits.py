from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codebutler.supervisor.limits import DAY_S, LOG_BURST, LOG_BYTES_PER_DAY, Reports, TokenBucket, shorten
from tests.clock import ManualClock
from tests.workers.services import RecordingServices


@given(st.lists(st.floats(0, 5), max_size=200))
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(gaps_s: list[float]) -> None:
    bucket = TokenBucket(rate=10, burst=5, now_s=0)
    now_s, taken = 0.0, 0
    for gap_s in gaps_s:
        now_s += gap_s
        taken += bucket.take(now_s)
    assert taken <= 5 + 10 * now_s + 1e-6


def test_an_empty_bucket_tells_how_long_to_wait() -> None:
    bucket = TokenBucket(rate=10, burst=1, now_s=0)
    assert bucket.owe(0) == 0
    assert not bucket.take(0)
    assert abs(bucket.owe(0) - 0.1) < 1e-9
    assert abs(bucket.owe(0.1, 10) - 1) < 1e-9
    assert bucket.take(2)


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    bucket = TokenBucket(rate=1, burst=2, now_s=100)
    assert bucket.take(50)
    assert bucket.take(50)
    assert not bucket.take(50)


async def test_a_flood_of_log_lines_is_cut_and_counted() -> None:
    services, clock = RecordingServices(), ManualClock()
    reports = Reports("shop", services, clock)
    for _ in range(5000):
        reports.record("INF", "x")
    assert len(services.logs) == LOG_BURST
    await clock.advance(1)
    reports.record("INF", "calm")
    dropped = "3000 log lines dropped: the worker wrote too fast or too much"
    assert services.logs[-2:] == [("shop", "INF", dropped), ("shop", "INF", "calm")]
    reports.close()
    assert services.logs[-1][2] == "calm"


async def test_a_worker_has_its_share_of_the_log_for_each_day() -> None:
    services, clock = RecordingServices(), ManualClock()
    reports = Reports("shop", services, clock)
    for _ in range(2000):
        reports.record("INF", "é" * 8000)
        await clock.advance(1)
    through = [text for _, _, text in services.logs]
    assert sum(len(line.encode()) for line in through) <= LOG_BYTES_PER_DAY * (1 + 2000 / DAY_S)
    await clock.advance(DAY_S)
    reports.record("INF", "the next day")
    assert services.logs[-1][2] == "the next day"


def test_a_long_text_is_shortened_and_says_so() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdef", 2) == "ab… (4 characters more)"
