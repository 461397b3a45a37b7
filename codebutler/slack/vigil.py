"""Notices what no ping can: that the machine slept, and that a living connection brings nothing."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from codebutler.clock import Clock
from codebutler.errors import CodeButlerError
from codebutler.slack.socket import SocketStatus

TICK_S = 5.0
# The wall clock ran ahead of the monotonic one: a suspend, or somebody set the clock. Either way, look.
SLEPT_S = 30.0
# Without an event for so long, history is asked whether there should have been one.
QUIET_S = 15.0
# So many channels at a time, in turn: history may be read 50 times a minute, by others too.
PER_ROUND = 3
# A connection that is replaced for being deaf is given this long before the next one is.
AGAIN_S = 120.0

log = logging.getLogger("codebutler.slack.vigil")


class Socket(Protocol):
    """The connection that is watched."""

    @property
    def status(self) -> SocketStatus: ...

    def rebuild(self) -> None:
        """Replace the connection from zero."""


class Vigil:
    """``channels``: which to look at, one after the other. ``is_deaf_to`` asks Slack about one."""

    def __init__(
        self,
        socket: Socket,
        channels: Callable[[], Sequence[str]],
        is_deaf_to: Callable[[str], Awaitable[bool]],
        clock: Clock,
    ) -> None:
        self._socket = socket
        self._channels = channels
        self._is_deaf_to = is_deaf_to
        self._clock = clock
        self._turn = 0
        self._quiet_s = 0.0
        self._not_before_s = 0.0

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            started, started_s = self._clock.now(), self._clock.monotonic()
            await self._clock.sleep(TICK_S)
            passed_s = self._clock.monotonic() - started_s
            ahead_s = (self._clock.now() - started).total_seconds() - passed_s
            if ahead_s > SLEPT_S:
                log.warning("the clock jumped ahead by %.0f s (sleep?): connecting anew", ahead_s)
                self._socket.rebuild()
            else:
                await self._listen(passed_s)

    async def _listen(self, passed_s: float) -> None:
        self._quiet_s += passed_s
        status = self._socket.status
        age_s = status.last_event_age_s
        if status.state != "connected" or age_s is None or min(age_s, self._quiet_s) < QUIET_S:
            return
        self._quiet_s = 0.0
        if self._clock.monotonic() >= self._not_before_s and await self._is_deaf():
            log.warning("Slack has messages that never came over the connection: connecting anew")
            self._not_before_s = self._clock.monotonic() + AGAIN_S
            self._socket.rebuild()

    async def _is_deaf(self) -> bool:
        channels = self._channels()
        try:
            for _ in channels[:PER_ROUND]:
                self._turn += 1
                if await self._is_deaf_to(channels[self._turn % len(channels)]):
                    return True
        except CodeButlerError as error:
            log.debug("the connection cannot be checked: %s", error)
        return False
