"""Which hosts we listen to: one that sends more than any host needs is left out for a while. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from codebutler.supervisor.reports import BYTES_BURST, BYTES_PER_S, TokenBucket

MESSAGES_PER_S, MESSAGES_BURST = 2000.0, 4000.0
LEFT_OUT_S = 10.0
MISTAKE_S = 60.0


class Floods:
    """For one subject per host. ``known`` are the subjects of the hosts that have repositories: we keep listening to
    them while another one is left out."""

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self.begun = asyncio.Event()
        """Set when a host begins to be left out."""
        self._known = known
        self._left_out: set[str] = set()
        self._counts: dict[str, TokenBucket] = {}
        self._bytes: dict[str, TokenBucket] = {}

    def admits(self, subject: str, size_bytes: int, now_s: float) -> bool:
        """Whether the message is within what its host may send."""
        if subject in self._left_out:
            return False
        if subject not in self._counts:
            self._counts[subject] = TokenBucket(MESSAGES_PER_S, MESSAGES_BURST, now_s)
            self._bytes[subject] = TokenBucket(BYTES_PER_S, BYTES_BURST, now_s)
        if self._counts[subject].take(now_s) and self._bytes[subject].take(now_s, size_bytes):
            return True
        self._left_out.add(subject)
        self.begun.set()
        return False

    def others(self) -> list[str]:
        """The subjects to listen to meanwhile."""
        self.begun.clear()
        return sorted(set(self._known()) - self._left_out)

    @property
    def left_out(self) -> list[str]:
        """The subjects that are left out now."""
        return sorted(self._left_out)

    def over(self) -> None:
        """Listen to everybody again."""
        self._left_out.clear()


class Seldom:
    """Which of a host's mistakes are logged: the first in a minute."""

    def __init__(self) -> None:
        self._next_s: dict[str, float] = {}

    def admits(self, host: str, now_s: float) -> bool:
        """Whether to log this one."""
        if now_s < self._next_s.get(host, now_s):
            return False
        self._next_s[host] = now_s + MISTAKE_S
        return True
