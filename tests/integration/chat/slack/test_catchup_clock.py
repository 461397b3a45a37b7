"""A wall clock that is wrong, or is set, costs no message: the marks of what came are the chat's own time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from random import Random

from codebutler.chat.slack.catchup import CatchUp, Shelf
from codebutler.chat.slack.http import ChatClock
from codebutler.intake.journal import Journal
from tests.clock import ManualClock, settle
from tests.dispatching import unused
from tests.integration.chat.slack.absences import Life, World
from tests.memory_chat import ME


class WrongClock(ManualClock):
    """Our wall clock, ``ahead`` of the chat's."""

    ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@asynccontextmanager
async def life_with(world: World, ahead: timedelta, *, heard: bool = True) -> AsyncIterator[Life]:
    """A life whose wall clock is wrong; ``heard``: the chat has told its time."""
    true = world.clock.now()
    clock = WrongClock(true)
    clock.ahead = ahead
    chat_clock = ChatClock(clock)
    if heard:
        chat_clock.received({"Date": format_datetime(true, usegmt=True)})
    async with Journal.open(world.path, clock) as journal:
        life = Life(journal, clock, world.chat, world.config)
        shelf = Shelf(intake=life.intake, journal=journal, dispatcher=unused())
        life.catch_up = CatchUp(world.chat, shelf, chat_clock, Random(1), lambda: life.repos)
        life.catch_up.lost()
        await settle()
        running = asyncio.create_task(life.catch_up.run(ME))
        life.catch_up.back()
        await life.caught_up()
        yield life
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_clock_that_was_ahead_when_a_channel_was_first_served(tmp_path: Path) -> None:
    world = World(tmp_path / "journal.db")
    async with life_with(world, timedelta(hours=1)):
        pass
    await world.say("missed")
    async with life_with(world, timedelta()) as life:
        assert life.texts == ["missed"]


async def test_a_clock_that_jumps_nine_days_at_a_restart(tmp_path: Path) -> None:
    world = World(tmp_path / "journal.db")
    async with life_with(world, timedelta()):
        pass
    await world.say("missed")
    async with life_with(world, timedelta(days=9)) as life:
        assert life.texts == ["missed"]


async def test_marks_of_the_future_that_an_older_version_left_are_mended(tmp_path: Path) -> None:
    world = World(tmp_path / "journal.db")
    async with life_with(world, timedelta(days=9), heard=False):
        pass
    await world.say("in the last minutes")
    async with life_with(world, timedelta()) as life:
        assert life.texts == ["in the last minutes"]
    await world.say("later")
    async with life_with(world, timedelta()) as life:
        assert life.texts == ["later"]
