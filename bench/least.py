"""The least time that Slack's limits allow for so many posts, from the table that the product itself keeps to. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.chat.port import Limit
from codebutler.chat.slack.api import SLACK_LIMITS

NARROW, WIDE = SLACK_LIMITS.channel["post"], SLACK_LIMITS.workspace["post"]


def least_s(posts: Mapping[str, int]) -> float:
    """Seconds from the first post to the last one, if nothing else takes time; ``posts``: how many in each channel."""
    narrow = (_last_s(number, NARROW) for number in posts.values())
    return max([_last_s(sum(posts.values()), WIDE), *narrow])


def _last_s(number: int, limit: Limit) -> float:
    return max(0.0, (number - limit.burst) * 60 / limit.per_minute)
