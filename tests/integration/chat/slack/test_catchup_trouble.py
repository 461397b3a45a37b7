"""Catching up in trouble: Slack refuses, a life ends, a connection is lost, a channel is given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import HistoryPage
from codebutler.chat.slack.catchup import CatchUp, Shelf
from codebutler.config.chats import SlackSection
from codebutler.config.schema import Config
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.refs import ConversationRef
from codebutler.intake.journal import Journal
from codebutler.intake.repos import Repo
from tests.clock import ManualClock
from tests.dispatching import unused
from tests.integration.chat.slack.absences import DEADLINE_S, OWNER, START, Life, World, world
from tests.memory_chat import ME, MemoryChat
from tests.notes import Notes

__all__ = ["world"]


async def test_a_live_message_does_not_wait_for_ever(world: World) -> None:
    async with world.life() as life:
        world.chat.hold("history")
        life.catch_up.back()
        await life.intake.accept(world.live(await world.say("live")))
        await life.clock.advance(3)
        assert life.texts == ["live"]
        world.chat.release("history")


async def test_nobody_waits_for_ever_though_an_earlier_catch_up_still_runs(world: World) -> None:
    async with world.life() as life:
        world.chat.hold("history")
        life.catch_up.back()
        await life.clock.advance(3)
        life.catch_up.lost()
        life.catch_up.back()
        await life.intake.accept(world.live(await world.say("live")))
        assert life.texts == []
        await life.clock.advance(3)
        assert life.texts == ["live"]
        world.chat.release("history")


async def test_troubles_of_slack_are_waited_out(world: World) -> None:
    await world.say("missed")
    world.chat.fail_next("history", ChatUnreachableError("down"), times=5)
    world.chat.fail_next("history", ChatRateLimitedError(3.0))
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.texts == ["missed"]


async def test_what_slack_refuses_stays_open_for_the_next_time(world: World) -> None:
    await world.say("missed")
    world.chat.fail_next("history", ChatError(code="not_in_channel"))
    async with world.life() as life:
        life.catch_up.back()
        await world.chat.until(lambda: "history" in world.chat.calls)
        await life.clock.advance(5)
        assert life.routed == []
        life.catch_up.lost()
        life.catch_up.back()
        await life.caught_up()
        assert life.texts == ["missed"]


async def test_a_life_that_ends_before_it_has_fetched_leaves_the_gap(world: World) -> None:
    await world.say("missed")
    async with world.life() as life:
        world.chat.hold("history")
        life.catch_up.back()
        await life.intake.accept(world.live(await world.say("live")))
        assert await life.journal.gap("C1") is not None
    world.chat.release("history")
    async with world.life() as life:
        await life.intake.resume()
        life.catch_up.back()
        await life.caught_up()
        assert sorted(life.texts) == ["live", "missed"]


async def test_a_connection_that_is_lost_while_catching_up_is_caught_up_too(world: World) -> None:
    async with world.life() as life:
        calls = len(world.chat.calls)
        world.chat.hold("history")
        life.catch_up.back()
        await world.chat.until(lambda: len(world.chat.calls) > calls)
        life.catch_up.lost()
        world.chat.release("history")
        await world.say("in the second gap")
        life.catch_up.back()
        await life.caught_up()
        assert life.texts == ["in the second gap"]


class TimedChat(MemoryChat):
    """Notes when history is read."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.moments: list[float] = []

    async def history(
        self, channel: str, *, thread: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        self.moments.append(self.clock.monotonic())
        return await super().history(channel, thread=thread, since_s=since_s, cursor=cursor)


async def test_a_hundred_channels_stay_within_the_rate_limit(tmp_path: Path) -> None:
    clock = ManualClock(START)
    chat = TimedChat(clock)
    config = Config(slack=SlackSection(allowed_users=(OWNER,)))
    async with (
        Journal.open(tmp_path / "journal.db", clock) as journal,
        Sender(chat, clock, Editor(str), Notes()) as sender,
    ):
        life = Life(journal, clock, chat, config)
        life.repos.clear()
        life.repos.update(
            {ConversationRef(f"C{number}"): Repo(f"repo{number}", config) for number in range(100)}
        )
        shelf = Shelf(intake=life.intake, journal=journal, dispatcher=unused())
        catch_up = CatchUp(sender.background, shelf, clock, Random(1), lambda: life.repos)
        catch_up.lost()
        catch_up.back()
        running = asyncio.create_task(catch_up.run(ME))
        async with asyncio.timeout(DEADLINE_S):
            while catch_up.is_busy:
                await clock.advance(0.1)
                await journal.high_water("C1")  # lets the journal's thread come first
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert len(chat.moments) == 100
    assert chat.moments[-1] < 120
    for start in chat.moments:
        assert len([moment for moment in chat.moments if start <= moment < start + 60]) <= 70


async def test_a_channel_that_was_given_up_begins_anew_when_it_comes_back(world: World) -> None:
    async with world.life() as life:
        await life.journal.keep_channels(["C2"])
    await world.say("among ourselves")
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.routed == []
        assert await life.intake.accept(world.live(world.chat.messages("C1")[0]["ts"])) == "duplicate"


async def test_a_message_that_never_came_shows_that_we_are_deaf(world: World) -> None:
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert not await asked(life)
        missing = await world.say("hello?")
        assert await asked(life)
        question = asyncio.create_task(life.catch_up.has_missed(["C2", "C1"], ME))
        await life.clock.advance(2)
        await life.intake.accept(world.live(missing))
        await life.clock.advance(10)
        assert not await question, "it was still on its way"


async def asked(life: Life) -> bool:
    """Whether history shows something that did not come."""
    question = asyncio.create_task(life.catch_up.has_missed(["C2", "C1"], ME))
    async with asyncio.timeout(DEADLINE_S):
        while not question.done():
            await life.clock.advance(1)
            await asyncio.sleep(0.001)
    return question.result()
