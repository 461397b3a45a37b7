"""Slack's rate limits: always counted, and enforced on request. Pure.

Source: Slack's rate limit tiers: 1, 20, 50 and 100 calls a minute per method; one message a second and
channel for chat.postMessage, with short bursts, and several hundred a minute for the whole workspace.
"""

from __future__ import annotations

from collections import Counter
from math import ceil

from msgspec import Struct

from codebutler.domain.clock import Clock

PER_MINUTE = {
    "chat.update": 50,
    "chat.delete": 50,
    "reactions.add": 50,
    "reactions.get": 50,
    "reactions.remove": 20,
    "conversations.list": 20,
    "conversations.create": 20,
    "conversations.info": 50,
    "conversations.join": 50,
    "conversations.history": 50,
    "conversations.replies": 50,
    "apps.connections.open": 50,
    "chat.scheduleMessage": 50,
    "chat.deleteScheduledMessage": 50,
    "chat.scheduledMessages.list": 50,
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "pins.add": 20,
    "pins.remove": 20,
    "pins.list": 20,
    "reactions.list": 20,
    "files.list": 50,
    "files.delete": 50,
    "users.lookupByEmail": 50,
    "assistant.threads.setStatus": 600,
    "users.list": 20,
}
DEFAULT_PER_MINUTE = 100
POST_BURST = 6
POSTS_PER_S, POSTS_BURST = 5.0, 60
"""For the whole workspace: the low end of "several hundred a minute"."""


class _Bucket(Struct):
    tokens: float
    filled_s: float


class RateLimits:
    """A token bucket for each method, and for each channel that gets posts.

    ``calls`` counts all by method, ``violations`` those that Slack would have refused, whether ``enforced``
    or not.
    """

    def __init__(self, clock: Clock, *, enforced: bool = True) -> None:
        self.enforced = enforced
        self.calls: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def wait_s(self, method: str, channel: str) -> int:
        """0 if the call may pass (and is counted), else the Retry-After in whole seconds."""
        self.calls[method] += 1
        wait_s = self._due_s(method, channel)
        if wait_s:
            self.violations[method] += 1
        return wait_s if self.enforced else 0

    def _due_s(self, method: str, channel: str) -> int:
        if method == "chat.postMessage":
            wait_s = self._take(f"post {channel}", POST_BURST, 1.0)
            return wait_s or self._take(method, POSTS_BURST, POSTS_PER_S)
        per_minute = PER_MINUTE.get(method, DEFAULT_PER_MINUTE)
        return self._take(method, per_minute, per_minute / 60)

    def _take(self, key: str, burst: int, per_second: float) -> int:
        now_s = self._clock.monotonic()
        bucket = self._buckets.setdefault(key, _Bucket(float(burst), now_s))
        bucket.tokens = min(float(burst), bucket.tokens + (now_s - bucket.filled_s) * per_second)
        bucket.filled_s = now_s
        if bucket.tokens >= 1:
            bucket.tokens -= 1
            return 0
        return ceil((1 - bucket.tokens) / per_second)
