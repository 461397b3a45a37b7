"""How long Slack's limits make so many posts last at least."""

from __future__ import annotations

from bench.least import NARROW, WIDE, least_s


def posts(channels: int, each: int) -> dict[str, int]:
    return {f"C{number}": each for number in range(channels)}


def test_a_burst_takes_no_time() -> None:
    assert least_s(posts(WIDE.burst, 1)) == 0


def test_the_workspace_decides_where_many_channels_post() -> None:
    channels, each = WIDE.burst, NARROW.burst
    assert least_s(posts(channels, each)) == (channels * each - WIDE.burst) * 60 / WIDE.per_minute


def test_one_channel_decides_where_it_posts_most() -> None:
    assert least_s({"C1": NARROW.burst + 10, "C2": 1}) == 10 * 60 / NARROW.per_minute
