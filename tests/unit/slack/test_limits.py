"""Token buckets: bursts, the long run, promises in order, pauses."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.slack.limits import Limit, Limits, full, pause, take

LIMIT = Limit(per_minute=60, burst=4)


def test_a_burst_then_the_rate() -> None:
    bucket = full(LIMIT, 0)
    waits = []
    for _ in range(6):
        bucket, wait_s = take(bucket, LIMIT, 0)
        waits.append(wait_s)
    assert waits == [0, 0, 0, 0, 1, 2]


def test_an_idle_bucket_holds_no_more_than_the_burst() -> None:
    bucket, _ = take(full(LIMIT, 0), LIMIT, 0)
    bucket, _ = take(bucket, LIMIT, 1_000)
    assert bucket.calls == 3


def test_after_a_pause_there_is_no_burst() -> None:
    bucket = pause(full(LIMIT, 0), 10, 0)
    bucket, first_s = take(bucket, LIMIT, 0)
    bucket, second_s = take(bucket, LIMIT, 0)
    assert first_s >= 10
    assert second_s - first_s >= 0.99


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=60))
def test_no_minute_sees_more_than_rate_and_burst(gaps_s: list[float]) -> None:
    bucket, now_s, calls = full(LIMIT, 0), 0.0, []
    for gap_s in gaps_s:
        now_s += gap_s
        bucket, wait_s = take(bucket, LIMIT, now_s)
        calls.append(now_s + wait_s)
    assert calls == sorted(calls)
    for start_s in calls:
        assert sum(start_s <= call < start_s + 59.9 for call in calls) <= 60 + LIMIT.burst


def test_channels_have_buckets_of_their_own() -> None:
    limits = Limits()
    for _ in range(5):
        assert limits.take("chat.postMessage", "C1", 0) == 0
    assert 1 < limits.take("chat.postMessage", "C1", 0) < 1.1
    assert limits.take("chat.postMessage", "C2", 0) == 0


def test_edits_share_one_bucket_in_the_workspace() -> None:
    limits = Limits()
    waits = [limits.take("chat.update", f"C{n}", 0) for n in range(11)]
    assert waits[:10] == [0] * 10
    assert waits[10] > 0


def test_a_pause_is_for_the_channel_where_there_is_a_limit_per_channel() -> None:
    limits = Limits()
    limits.pause("chat.postMessage", "C1", 30, 0)
    limits.pause("chat.update", "C1", 30, 0)
    assert limits.paused_s("chat.postMessage", "C1", 10) == 20
    assert limits.paused_s("chat.postMessage", "C2", 10) == 0
    assert limits.paused_s("chat.update", "C2", 10) == 20


def test_a_method_without_a_limit_never_waits() -> None:
    assert Limits().take("auth.test", "C1", 0) == 0


def test_a_call_that_is_not_free_is_not_promised() -> None:
    limits = Limits()
    free = [limits.take_free("chat.update", "C1", 0.0) for _ in range(30)]
    assert free == [True] * 10 + [False] * 20
    assert limits.take("chat.update", "C1", 0.0) <= 60 / 50
