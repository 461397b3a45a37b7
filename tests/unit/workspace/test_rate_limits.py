"""Slack's limits as the embedded workspace keeps them."""

from __future__ import annotations

from codebutler.workspace.api import POST_BURST, POSTS_BURST, POSTS_PER_S, RateLimits
from tests.clock import ManualClock

POST = "chat.postMessage"


async def test_a_channel_takes_one_post_a_second_after_a_short_burst() -> None:
    clock = ManualClock()
    limits = RateLimits(clock)
    assert [limits.wait_s(POST, "C1") for _ in range(POST_BURST)] == [0] * POST_BURST
    assert limits.wait_s(POST, "C1") == 1
    assert limits.wait_s(POST, "C2") == 0
    await clock.advance(1)
    assert [limits.wait_s(POST, "C1") for _ in range(2)] == [0, 1]


async def test_a_workspace_takes_several_hundred_posts_a_minute() -> None:
    clock = ManualClock()
    limits = RateLimits(clock)
    assert sum(limits.wait_s(POST, f"C{number}") for number in range(POSTS_BURST)) == 0
    assert limits.wait_s(POST, "Cmore") == 1
    await clock.advance(1)
    passed = [limits.wait_s(POST, f"D{number}") == 0 for number in range(10)]
    assert passed.count(True) == POSTS_PER_S
    assert limits.violations[POST] == 1 + passed.count(False)


async def test_what_the_channel_refuses_costs_the_workspace_nothing() -> None:
    limits = RateLimits(ManualClock())
    for _ in range(POSTS_BURST):
        limits.wait_s(POST, "C1")
    free = POSTS_BURST - POST_BURST
    assert sum(limits.wait_s(POST, f"D{number}") for number in range(free)) == 0
    assert limits.wait_s(POST, "Dmore") == 1
