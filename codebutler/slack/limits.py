"""How often Slack lets us call: token buckets as plain data. Pure.

Slack: rate limits are per method, workspace and app; chat.postMessage also about one per second and channel,
with short bursts. Tier 2 = 20, tier 3 = 50, tier 4 = 100 calls per minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Limit:
    """``per_minute`` calls on average, of which ``burst`` may come at once."""

    per_minute: float
    burst: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """``calls`` left at ``at_s``; negative once calls were promised a later moment. Nothing before
    ``paused_until_s``. Moments are of the monotonic clock."""

    calls: float
    at_s: float
    paused_until_s: float = 0.0


# A little below what Slack takes: calls that leave a second apart may arrive closer together.
PER_CHANNEL: Mapping[str, Limit] = MappingProxyType({"chat.postMessage": Limit(per_minute=58, burst=5)})
PER_WORKSPACE: Mapping[str, Limit] = MappingProxyType(
    {
        "chat.postMessage": Limit(per_minute=300, burst=50),
        "chat.postEphemeral": Limit(per_minute=100, burst=10),
        "chat.update": Limit(per_minute=50, burst=10),
        "chat.delete": Limit(per_minute=50, burst=10),
        "chat.startStream": Limit(per_minute=18, burst=5),
        "chat.appendStream": Limit(per_minute=95, burst=10),
        "chat.stopStream": Limit(per_minute=18, burst=5),
        "reactions.add": Limit(per_minute=50, burst=20),
        "reactions.remove": Limit(per_minute=20, burst=10),
        "reactions.get": Limit(per_minute=50, burst=20),
        "files.completeUploadExternal": Limit(per_minute=100, burst=10),
        # A start looks at every channel at once.
        "conversations.history": Limit(per_minute=50, burst=20),
        "conversations.replies": Limit(per_minute=50, burst=20),
    }
)


def full(limit: Limit, now_s: float) -> Bucket:
    """A bucket that has not been used."""
    return Bucket(calls=limit.burst, at_s=now_s)


def take(bucket: Bucket, limit: Limit, now_s: float) -> tuple[Bucket, float]:
    """Promise one call: the bucket afterwards, and the seconds until the call may be made.

    Promises are kept in the order they were asked for, so nobody starves.
    """
    refilled = min(float(limit.burst), bucket.calls + (now_s - bucket.at_s) * limit.per_minute / 60.0)
    left = refilled - 1.0
    wait_s = max(0.0, -left * 60.0 / limit.per_minute, bucket.paused_until_s - now_s)
    return replace(bucket, calls=left, at_s=now_s), wait_s


def pause(bucket: Bucket, seconds: float, now_s: float) -> Bucket:
    """Slack said how long to wait: nothing until then, and no burst right after."""
    until_s = max(bucket.paused_until_s, now_s + seconds)
    return Bucket(calls=min(bucket.calls, 0.0), at_s=until_s, paused_until_s=until_s)


class Limits:
    """The buckets of one workspace, made as they are needed."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, str], Bucket] = {}

    def take(self, method: str, channel: str, now_s: float) -> float:
        """Seconds until ``method`` may be called for ``channel``; the call is promised."""
        waits = [0.0]
        for key, limit in self._keys(method, channel):
            bucket = self._buckets.get(key) or full(limit, now_s)
            self._buckets[key], wait_s = take(bucket, limit, now_s)
            waits.append(wait_s)
        return max(waits)

    def wait_s(self, method: str, channel: str, now_s: float) -> float:
        """Seconds until ``method`` may be called for ``channel``; nothing is promised."""
        keys = self._keys(method, channel)
        waits = (take(self._buckets.get(key) or full(limit, now_s), limit, now_s)[1] for key, limit in keys)
        return max([0.0, *waits])

    def take_free(self, method: str, channel: str, now_s: float) -> bool:
        """Whether ``method`` may be called for ``channel`` at once; only then the call is promised."""
        if self.wait_s(method, channel, now_s) > 0:
            return False
        self.take(method, channel, now_s)
        return True

    def pause(self, method: str, channel: str, seconds: float, now_s: float) -> None:
        """Slack refused ``method`` for ``seconds``: where it has a limit per channel, that one waits."""
        keys = self._keys(method, channel)
        if keys:
            key, limit = keys[0]
            self._buckets[key] = pause(self._buckets.get(key) or full(limit, now_s), seconds, now_s)

    def paused_s(self, method: str, channel: str, now_s: float) -> float:
        """Seconds that ``method`` is still to wait because Slack said so."""
        buckets = (self._buckets.get(key) for key, _limit in self._keys(method, channel))
        return max([0.0, *(bucket.paused_until_s - now_s for bucket in buckets if bucket)])

    def _keys(self, method: str, channel: str) -> list[tuple[tuple[str, str], Limit]]:
        """The narrowest first."""
        keys = []
        if (narrow := PER_CHANNEL.get(method)) is not None:
            keys.append(((method, channel), narrow))
        if (wide := PER_WORKSPACE.get(method)) is not None:
            keys.append(((method, ""), wide))
        return keys
