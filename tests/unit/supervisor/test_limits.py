from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codebutler.supervisor.reports import DAY_S, LOG_BURST, LOG_BYTES_PER_DAY, LogGate, TokenBucket, shorten


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


def test_a_flood_of_log_lines_is_cut_and_counted() -> None:
    gate = LogGate(0)
    through = [line for _ in range(5000) for line in gate.admit("x", 0)]
    assert len(through) == LOG_BURST
    assert gate.admit("calm", 1) == ["3000 log lines dropped: the worker wrote too fast or too much", "calm"]
    assert gate.flush() == []


def test_a_worker_has_its_share_of_the_log_for_each_day() -> None:
    gate = LogGate(0)
    through = [line for second in range(2000) for line in gate.admit("é" * 8000, second)]
    assert sum(len(line.encode()) for line in through) <= LOG_BYTES_PER_DAY * (1 + 2000 / DAY_S)
    assert gate.admit("the next day", DAY_S)[1:] == ["the next day"]


def test_a_long_text_is_shortened_and_says_so() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcdef", 2) == "ab… (4 characters more)"
