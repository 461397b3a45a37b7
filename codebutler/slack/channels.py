"""Channels we may not write in just now: archived, or we were taken out of them. What is to be said there waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from codebutler.clock import Clock
from codebutler.errors import ChatError
from codebutler.process.waiting import wait_for

T = TypeVar("T")

PROBE_S = 60.0
"""So often it is tried again where no event says that the channel is back."""
CLOSED = {
    "is_archived": "its channel is archived: unarchive it in Slack",
    "not_in_channel": "the app is not in its channel: write `/invite @CodeButler` there",
    "channel_not_found": "its channel is gone, or private without the app: invite it, or `codebutler add-repo` anew",
}
_AFTER = {"archived": "is_archived", "left": "not_in_channel"}

log = logging.getLogger("codebutler.slack.channels")


def _unheard() -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True, slots=True)
class ChannelMoved:
    """What Slack says has become of a channel: ``archived``, ``left`` (we were taken out), ``back``."""

    channel: str
    how: str


class Channels:
    """Which channels are closed to us, and why. ``on_change`` is told of each change."""

    def __init__(self, clock: Clock, on_change: Callable[[], None] = _unheard) -> None:
        self._clock = clock
        self._on_change = on_change
        self._closed: dict[str, str] = {}
        self._opened: dict[str, asyncio.Event] = {}

    def trouble(self, channel: str) -> str:
        """Why we may not write there and what to do, "" if we may."""
        return CLOSED.get(self._closed.get(channel, ""), "")

    def moved(self, moved: ChannelMoved) -> None:
        """Slack has said so."""
        if moved.how == "back":
            self._open(moved.channel)
        else:
            self._close(moved.channel, _AFTER[moved.how])

    async def when_open(self, channel: str, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` in the channel, again as often as it is refused because the channel is closed.

        Raises what else ``work`` raises.
        """
        while True:
            try:
                done = await work()
            except ChatError as error:
                if error.code not in CLOSED:
                    raise
                self._close(channel, error.code)
                await self._wait(channel)
            else:
                self._open(channel)
                return done

    async def _wait(self, channel: str) -> None:
        opened = self._opened.setdefault(channel, asyncio.Event())
        await wait_for(self._clock, opened, PROBE_S)

    def _close(self, channel: str, code: str) -> None:
        if self._closed.get(channel) != code:
            self._closed[channel] = code
            self._opened[channel] = asyncio.Event()
            log.warning("%s: %s", channel, CLOSED[code])
            self._on_change()

    def _open(self, channel: str) -> None:
        if self._closed.pop(channel, None) is not None:
            log.info("%s: what waited is said now", channel)
            self._on_change()
        if opened := self._opened.pop(channel, None):
            opened.set()
