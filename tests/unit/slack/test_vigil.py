"""The vigil: what makes it replace a connection that still looks alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from codebutler.clock import ManualClock
from codebutler.errors import ChatUnreachableError
from codebutler.slack.socket import SocketState, SocketStatus
from codebutler.slack.vigil import Vigil


class Jumping(ManualClock):
    """A wall clock that can be set; the monotonic one goes on as ever."""

    offset = timedelta()

    def now(self) -> datetime:
        return super().now() + self.offset


class Ears:
    """A connection that notes how often it was replaced."""

    def __init__(self) -> None:
        self.rebuilt = 0
        self.state: SocketState = "connected"
        self.age_s: float | None = 600.0

    @property
    def status(self) -> SocketStatus:
        return SocketStatus(state=self.state, last_event_age_s=self.age_s)

    def rebuild(self) -> None:
        self.rebuilt += 1


class Watch:
    """A vigil at work, and what it asked for."""

    def __init__(self) -> None:
        self.clock = Jumping()
        self.ears = Ears()
        self.deaf = False
        self.broken = False
        self.asked: list[str] = []
        self.channels: tuple[str, ...] = ("C0", "C1")

    async def is_deaf_to(self, channel: str) -> bool:
        self.asked.append(channel)
        if self.broken:
            raise ChatUnreachableError("down")
        return self.deaf


@asynccontextmanager
async def watching() -> AsyncIterator[Watch]:
    watch = Watch()
    ask: Callable[[str], Awaitable[bool]] = watch.is_deaf_to
    task = asyncio.create_task(Vigil(watch.ears, lambda: watch.channels, ask, watch.clock).run())
    try:
        yield watch
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_deaf_connection_is_replaced_within_half_a_minute() -> None:
    async with watching() as watch:
        await watch.clock.advance(20)
        assert watch.ears.rebuilt == 0
        watch.deaf = True
        await watch.clock.advance(30)
        assert watch.ears.rebuilt == 1


async def test_one_that_stays_deaf_is_not_replaced_all_the_time() -> None:
    async with watching() as watch:
        watch.deaf = True
        await watch.clock.advance(600)
        assert watch.ears.rebuilt == 5


async def test_the_channels_are_asked_in_turn_and_seldom() -> None:
    async with watching() as watch:
        watch.channels = tuple(f"C{number}" for number in range(5))
        await watch.clock.advance(30)
        assert watch.asked == ["C1", "C2", "C3", "C4", "C0", "C1"]
        watch.channels = ()
        await watch.clock.advance(30)
        assert len(watch.asked) == 6


async def test_a_connection_that_brings_events_or_is_gone_is_not_asked_about() -> None:
    async with watching() as watch:
        watch.ears.age_s = 3.0
        await watch.clock.advance(60)
        watch.ears.age_s, watch.ears.state = 600.0, "reconnecting"
        await watch.clock.advance(60)
        assert watch.asked == []


async def test_a_question_that_cannot_be_asked_proves_nothing() -> None:
    async with watching() as watch:
        watch.broken = True
        await watch.clock.advance(60)
        assert watch.asked
        assert watch.ears.rebuilt == 0


async def test_a_sleep_of_eight_hours_is_noticed_at_once() -> None:
    async with watching() as watch:
        await watch.clock.advance(7)
        watch.clock.offset = timedelta(hours=8)
        await watch.clock.advance(5)
        assert watch.ears.rebuilt == 1
        await watch.clock.advance(20)
        assert watch.ears.rebuilt == 1


async def test_a_clock_that_is_set_back_disturbs_nothing() -> None:
    async with watching() as watch:
        await watch.clock.advance(7)
        watch.clock.offset = timedelta(hours=-1)
        await watch.clock.advance(30)
        assert watch.ears.rebuilt == 0
