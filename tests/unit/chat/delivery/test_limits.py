"""Token buckets: bursts, the long run, what is spared, pauses."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.chat.delivery.planner import Buckets
from codebutler.chat.port import Limit, Limits
from codebutler.chat.slack.api import SLACK_LIMITS

LIMIT = Limit(per_minute=60, burst=4)


def buckets(limit: Limit = LIMIT) -> Buckets:
    return Buckets(Limits(workspace={"update": limit}, channel={}))


def test_a_burst_then_the_rate() -> None:
    some = buckets()
    for _ in range(4):
        assert some.wait_s("update", "C1", 0) == 0
        some.take("update", "C1", 0)
    assert some.wait_s("update", "C1", 0) == 1
    assert some.wait_s("update", "C1", 0.75) == 0.25


def test_an_idle_bucket_holds_no_more_than_the_burst() -> None:
    some = buckets()
    some.take("update", "C1", 0)
    for _ in range(4):
        some.take("update", "C1", 1_000)
    assert some.wait_s("update", "C1", 1_000) == 1


def test_what_is_cheap_spares_a_part_of_the_burst() -> None:
    some = buckets()
    some.take("update", "C1", 0)
    assert some.wait_s("update", "C1", 0, spared=0.5) == 0
    some.take("update", "C1", 0)
    assert some.wait_s("update", "C1", 0, spared=0.5) == 1
    assert some.wait_s("update", "C1", 0) == 0


def test_after_a_pause_there_is_no_burst() -> None:
    some = buckets()
    some.pause("update", "C1", 10, 0)
    assert some.wait_s("update", "C1", 0) >= 10
    some.take("update", "C1", 11)
    assert some.wait_s("update", "C1", 11) >= 0.99


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=60))
def test_no_minute_sees_more_than_rate_and_burst(gaps_s: list[float]) -> None:
    some, now_s, calls = buckets(), 0.0, list[float]()
    for gap_s in gaps_s:
        now_s += gap_s
        now_s += some.wait_s("update", "C1", now_s)
        some.take("update", "C1", now_s)
        calls.append(now_s)
    for start_s in calls:
        assert sum(start_s <= call < start_s + 59.9 for call in calls) <= 60 + LIMIT.burst


def test_channels_have_buckets_of_their_own() -> None:
    slack = Buckets(SLACK_LIMITS)
    for _ in range(5):
        slack.take("post", "C1", 0)
    assert 1 < slack.wait_s("post", "C1", 0) < 1.1
    assert slack.wait_s("post", "C2", 0) == 0


def test_edits_share_one_bucket_in_the_workspace() -> None:
    slack = Buckets(SLACK_LIMITS)
    for number in range(10):
        slack.take("update", f"C{number}", 0)
    assert slack.wait_s("update", "C11", 0) > 0


def test_a_pause_is_for_the_channel_where_there_is_a_limit_per_channel() -> None:
    slack = Buckets(SLACK_LIMITS)
    slack.pause("post", "C1", 30, 0)
    slack.pause("update", "C1", 30, 0)
    assert slack.wait_s("post", "C1", 10) >= 20
    assert slack.wait_s("post", "C2", 10) == 0
    assert slack.wait_s("update", "C2", 10) >= 20


def test_a_call_without_a_limit_never_waits() -> None:
    none = Buckets(Limits(workspace={}, channel={}))
    none.take("post", "C1", 0)
    assert none.wait_s("post", "C1", 0) == 0
