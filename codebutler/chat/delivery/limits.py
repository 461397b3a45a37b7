"""What is left of what the chat allows: token buckets as plain data. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from codebutler.chat.port import Call, Limit, Limits

# A sum of fractions is not quite whole.
NEARLY = 1e-6


@dataclass(frozen=True, slots=True)
class Bucket:
    """``calls`` left at ``at_s``, a moment of the monotonic clock. Nothing before ``paused_until_s``."""

    calls: float
    at_s: float
    paused_until_s: float = 0.0

    def refilled(self, limit: Limit, now_s: float) -> float:
        """The calls that are left now."""
        gained = max(0.0, now_s - self.at_s) * limit.per_minute / 60.0
        return min(float(limit.burst), self.calls + gained)

    def wait_s(self, limit: Limit, now_s: float, spared: float) -> float:
        """Seconds until a call may be made that leaves so much of the burst, a fraction."""
        missing = 1 + int(limit.burst * spared) - self.refilled(limit, now_s)
        wait_s = missing * 60.0 / limit.per_minute if missing > NEARLY else 0.0
        return max(0.0, wait_s, self.paused_until_s - now_s)

    def taken(self, limit: Limit, now_s: float) -> Bucket:
        """After a call now."""
        return Bucket(self.refilled(limit, now_s) - 1.0, max(now_s, self.at_s), self.paused_until_s)

    def paused(self, seconds: float, now_s: float) -> Bucket:
        """After the chat has said how long to wait: nothing until then, and no burst right after."""
        until_s = max(self.paused_until_s, now_s + seconds)
        return Bucket(min(self.calls, 0.0), until_s, until_s)


Key = tuple[Call, str]


class Buckets:
    """The buckets of one workspace, made as they are needed."""

    def __init__(self, limits: Limits, used: dict[Key, Bucket] | None = None) -> None:
        self._limits = limits
        self._used = used or {}

    def copy(self) -> Self:
        """The same, to plan with."""
        return type(self)(self._limits, dict(self._used))

    def burst(self, call: Call) -> float:
        """How many calls may come at once in the workspace; without end where nothing is said."""
        limit = self._limits.workspace.get(call)
        return limit.burst if limit else float("inf")

    def wait_s(self, call: Call, channel: str, now_s: float, spared: float = 0.0) -> float:
        """Seconds until ``call`` may be made in ``channel`` and leaves so much of each burst."""
        waits = (bucket.wait_s(limit, now_s, spared) for _, limit, bucket in self._of(call, channel, now_s))
        return max(waits, default=0.0)

    def wait_anywhere_s(self, call: Call, now_s: float, spared: float) -> float:
        """The same for any channel."""
        limit = self._limits.workspace.get(call)
        if limit is None:
            return 0.0
        return self._used.get((call, ""), Bucket(limit.burst, now_s)).wait_s(limit, now_s, spared)

    def take(self, call: Call, channel: str, now_s: float) -> None:
        """It is made now."""
        for key, limit, bucket in self._of(call, channel, now_s):
            self._used[key] = bucket.taken(limit, now_s)

    def pause(self, call: Call, channel: str, seconds: float, now_s: float) -> None:
        """The chat refused it for ``seconds``: where there is a limit per channel, that one waits."""
        for key, _, bucket in self._of(call, channel, now_s):
            self._used[key] = bucket.paused(seconds, now_s)
            return

    def _of(self, call: Call, channel: str, now_s: float) -> Iterator[tuple[Key, Limit, Bucket]]:
        """The narrowest first."""
        for key, limits in (((call, channel), self._limits.channel), ((call, ""), self._limits.workspace)):
            if (limit := limits.get(call)) is not None:
                yield key, limit, self._used.get(key) or Bucket(limit.burst, now_s)
