"""Our presence: what makes it replace a connection that still looks alive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from codebutler.chat.slack.presence import Presence
from codebutler.chat.slack.socket import SocketState, SocketStatus
from codebutler.domain.errors import ChatUnreachableError
from codebutler.domain.refs import ConversationRef
from tests.clock import ManualClock

MANY = tuple(ConversationRef(f"C{number}") for number in range(100))


class Jumping(ManualClock):
    """A wall clock that can be set; the monotonic one goes on as ever."""

    offset = timedelta()

    def now(self) -> datetime:
        return super().now() + self.offset


class Line:
    """A connection that notes when it was replaced."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.rebuilt_s: list[float] = []
        self.state: SocketState = "connected"
        self.heard_s: float | None = -600.0

    @property
    def rebuilt(self) -> int:
        return len(self.rebuilt_s)

    @property
    def status(self) -> SocketStatus:
        age_s = None if self.heard_s is None else self.clock.monotonic() - self.heard_s
        return SocketStatus(state=self.state, last_event_age_s=age_s)

    def rebuild(self) -> None:
        self.rebuilt_s.append(self.clock.monotonic())


class Watch:
    """It at work, and what it asked for. ``missed``: history shows what did not come. ``echoing``: an
    event of our own comes back."""

    def __init__(self) -> None:
        self.clock = Jumping()
        self.line = Line(self.clock)
        self.missed = False
        self.echoing = True
        self.broken = False
        self.asked: list[str] = []
        self.calls = 0
        self.channels: tuple[ConversationRef, ...] = (ConversationRef("C0"), ConversationRef("C1"))

    async def has_missed(self, channels: Sequence[str]) -> bool:
        self.asked += channels
        if self.broken:
            raise ChatUnreachableError("down")
        return self.missed

    async def call(self) -> None:
        self.calls += 1
        if self.broken:
            raise ChatUnreachableError("down")
        if self.echoing:
            self.line.heard_s = self.clock.monotonic()


@asynccontextmanager
async def watching() -> AsyncIterator[Watch]:
    watch = Watch()
    presence = Presence(
        lambda: watch.channels,
        lambda: watch.line.status,
        watch.line.rebuild,
        watch.has_missed,
        watch.call,
        watch.clock,
    )
    task = asyncio.create_task(presence.run())
    try:
        yield watch
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_deaf_connection_is_replaced_within_half_a_minute() -> None:
    async with watching() as watch:
        await watch.clock.advance(20)
        assert watch.line.rebuilt == 0
        watch.missed = True
        await watch.clock.advance(30)
        assert watch.line.rebuilt == 1


async def test_one_that_stays_deaf_is_not_replaced_all_the_time() -> None:
    async with watching() as watch:
        watch.missed = True
        await watch.clock.advance(600)
        assert watch.line.rebuilt == 5


@pytest.mark.parametrize("phase_s", range(0, 15, 2))
async def test_with_a_hundred_channels_a_deaf_connection_is_found_within_half_a_minute_too(
    phase_s: int,
) -> None:
    async with watching() as watch:
        watch.channels = MANY
        await watch.clock.advance(60 + phase_s)
        assert watch.calls >= 3
        assert watch.line.rebuilt == 0
        watch.echoing = False
        deaf_s = watch.clock.monotonic()
        await watch.clock.advance(30)
        assert watch.line.rebuilt == 1
        assert watch.line.rebuilt_s[0] - deaf_s < 30


async def test_within_an_hour_slack_is_asked_less_often_than_it_allows() -> None:
    async with watching() as watch:
        watch.channels = MANY
        await watch.clock.advance(3600)
        assert watch.line.rebuilt == 0
        assert watch.calls <= 60 * 5  # chat.update: 50 a minute
        assert len(watch.asked) <= 60 * 30  # conversations.history: 50 a minute
        assert set(watch.asked) == set(MANY)


async def test_where_our_own_events_never_come_back_that_proves_nothing_for_long() -> None:
    async with watching() as watch:
        watch.channels, watch.echoing = MANY, False
        await watch.clock.advance(3600)
        assert (watch.calls, watch.line.rebuilt) == (2, 2)


async def test_few_channels_need_no_event_of_our_own() -> None:
    async with watching() as watch:
        watch.channels = MANY[:6]
        await watch.clock.advance(60)
        assert watch.calls == 0


async def test_another_event_is_as_good_as_our_own() -> None:
    async with watching() as watch:
        watch.channels = MANY
        await watch.clock.advance(60)
        watch.echoing = False
        while watch.calls < 5:
            await watch.clock.advance(1)
        watch.line.heard_s = watch.clock.monotonic() + 1
        await watch.clock.advance(10)
        assert watch.line.rebuilt == 0


async def test_the_channels_are_asked_in_turn_and_seldom() -> None:
    async with watching() as watch:
        watch.channels = MANY[:8]
        await watch.clock.advance(40)
        assert watch.asked == ["C0", "C1", "C2", "C3", "C4", "C5", "C6", "C7", "C0", "C1", "C2", "C3"]
        watch.channels = ()
        await watch.clock.advance(30)
        assert len(watch.asked) == 12


async def test_a_connection_that_brings_events_or_is_gone_is_not_asked_about() -> None:
    async with watching() as watch:
        watch.line.heard_s = watch.clock.monotonic() + 57
        await watch.clock.advance(60)
        watch.line.heard_s, watch.line.state = 0.0, "reconnecting"
        await watch.clock.advance(60)
        assert watch.asked == []


async def test_a_question_that_cannot_be_asked_proves_nothing() -> None:
    async with watching() as watch:
        watch.broken = True
        await watch.clock.advance(60)
        assert watch.asked
        assert watch.line.rebuilt == 0


async def test_a_sleep_of_eight_hours_is_noticed_at_once() -> None:
    async with watching() as watch:
        await watch.clock.advance(7)
        watch.clock.offset = timedelta(hours=8)
        await watch.clock.advance(5)
        assert watch.line.rebuilt == 1
        await watch.clock.advance(20)
        assert watch.line.rebuilt == 1


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_that_is_set_is_noticed_at_once(hours: int) -> None:
    async with watching() as watch:
        await watch.clock.advance(7)
        watch.clock.offset = timedelta(hours=hours)
        await watch.clock.advance(5)
        assert watch.line.rebuilt == 1
        await watch.clock.advance(30)
        assert watch.line.rebuilt == 1


async def test_a_clock_that_is_corrected_a_little_disturbs_nothing() -> None:
    async with watching() as watch:
        await watch.clock.advance(7)
        watch.clock.offset = timedelta(seconds=20)
        await watch.clock.advance(30)
        assert watch.line.rebuilt == 0


async def test_a_sleep_while_slack_is_being_asked_is_noticed_too() -> None:
    async with watching() as watch:
        watch.channels = MANY
        await watch.clock.advance(20)
        watch.echoing = False
        while watch.calls < 2:
            await watch.clock.advance(1)
        watch.clock.offset = timedelta(hours=8)
        await watch.clock.advance(15)
        assert watch.line.rebuilt >= 1
