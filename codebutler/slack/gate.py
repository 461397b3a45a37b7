"""When Slack may be called: the rate limits, the token, and the pause after a failure."""

from __future__ import annotations

import logging
from heapq import heapify, heappush
from itertools import count
from random import Random

from codebutler.clock import Clock
from codebutler.errors import ChatError, ChatOutcomeUnknownError
from codebutler.slack.authority import Authority
from codebutler.slack.backoff import full_jitter_s
from codebutler.slack.limits import Limits

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 30.0
# A request that timed out may still be under way inside Slack: looking at once would see too little.
LOOK_DELAY_S = 2.0
# Who can wait looks again after so long, at least.
LOOK_AGAIN_S = 0.05

log = logging.getLogger("codebutler.slack.sender")


class Gate:
    """Shared by everything that calls Slack with one token, so that the limits hold over all of it."""

    def __init__(self, authority: Authority, clock: Clock, rng: Random) -> None:
        self.authority = authority
        self._clock = clock
        self._rng = rng
        self._limits = Limits()
        self._patient: dict[str, list[tuple[int, int]]] = {}
        self._numbers = count()
        self._look_from_s = clock.monotonic() + LOOK_DELAY_S

    async def promised(self, method: str, channel: str) -> None:
        """Wait until the rate limits allow the call."""
        await self.waited(method, channel, self.take_s(method, channel))

    async def spared(self, method: str, channel: str, rank: int) -> None:
        """The same for what can wait: all that was promised goes before it, also what is promised meanwhile. Of
        those who can wait the lowest ``rank`` goes first."""
        waiting, me = self._patient.setdefault(method, []), (rank, next(self._numbers))
        heappush(waiting, me)
        try:
            while waiting[0] != me or not self._limits.take_free(method, channel, self._clock.monotonic()):
                wait_s = self._limits.wait_s(method, channel, self._clock.monotonic())
                await self._clock.sleep(max(wait_s, LOOK_AGAIN_S))
        finally:
            waiting.remove(me)
            heapify(waiting)

    async def claim(self, method: str, channel: str) -> None:
        """Wait until the rate limits and the token allow the call."""
        await self.promised(method, channel)
        await self.authority.wait()

    def take_s(self, method: str, channel: str) -> float:
        """Promise a call; returns the seconds until it may be made."""
        return self._limits.take(method, channel, self._clock.monotonic())

    def is_free(self, method: str, channel: str) -> bool:
        """Whether the limits and the token allow the call at once; only then it is promised."""
        if self.authority.trouble:
            return False
        return self._limits.take_free(method, channel, self._clock.monotonic())

    async def waited(self, method: str, channel: str, wait_s: float) -> None:
        """Wait for a promised call, and for what Slack refuses meanwhile."""
        while wait_s > 0:
            await self._clock.sleep(wait_s)
            wait_s = self._limits.paused_s(method, channel, self._clock.monotonic())

    def pause(self, method: str, channel: str, seconds: float) -> None:
        """Slack said how long to wait."""
        self._limits.pause(method, channel, seconds, self._clock.monotonic())

    async def calm(self) -> None:
        """Wait until nothing that an earlier process of ours sent can still be under way inside Slack."""
        wait_s = self._look_from_s - self._clock.monotonic()
        if wait_s > 0:
            await self._clock.sleep(wait_s)

    async def back_off(self, failures: int, error: ChatError) -> None:
        """Wait after the ``failures``-th failure in a row of one operation."""
        if failures == 1:
            log.warning("%s; trying again", error)
        wait_s = full_jitter_s(self._rng, failures, BACKOFF_BASE_S, BACKOFF_CAP_S)
        if isinstance(error, ChatOutcomeUnknownError):
            wait_s = max(wait_s, LOOK_DELAY_S)
        await self._clock.sleep(wait_s)
