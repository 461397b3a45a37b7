"""Catching up over a real journal: what is fetched, in which order, and what a cut leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from codebutler.clock import ManualClock, settle
from codebutler.config.schema import AgentSection, Config, SlackSection
from codebutler.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.intake.authorise import Decision
from codebutler.intake.entry import Entry
from codebutler.intake.intake import Intake, Repo
from codebutler.intake.journal import Journal
from codebutler.model import Event, MessageDeleted, MessageEdited, MessagePosted
from codebutler.routing.holding import HoldingRouter
from codebutler.slack.catchup import CatchUp, Shelf
from codebutler.slack.memory import ME, MemoryChat
from codebutler.slack.port import Page
from codebutler.slack.sender import Sender

OWNER = "U0OWNER"
DEADLINE_S = 20.0
# The moment at which MemoryChat's messages are written.
START = datetime(2026, 1, 1, tzinfo=UTC)


class Life:
    """One life of a supervisor: intake, journal and catch-up; ``routed`` is what reaches the workers."""

    def __init__(self, journal: Journal, clock: ManualClock, chat: MemoryChat, config: Config) -> None:
        self.journal = journal
        self.clock = clock
        self.routed: list[Event] = []
        self.refusals: list[str] = []
        self.repos = {"C1": Repo("sample", config)}
        router = HoldingRouter(self)
        self.intake = Intake(
            repos=lambda: self.repos,
            journal=journal,
            router=router,
            refusals=self,
            clock=clock,
        )
        shelf = Shelf(intake=self.intake, journal=journal, router=router)
        self.catch_up = CatchUp(chat, shelf, clock, Random(1), lambda: self.repos)
        self.news = asyncio.Event()

    def route(self, entry: Entry) -> None:
        self.routed.append(entry.event)
        self.news.set()

    def refused(self, event: Event, kind: str, decision: Decision, *, tell: bool) -> None:
        self.refusals.append(event.user)

    def commanded(self, event: Event, kind: str) -> None:
        self.news.set()

    async def caught_up(self) -> None:
        """Wait until no gap is left and all was looked at; the clock runs meanwhile."""
        async with asyncio.timeout(DEADLINE_S):
            while await self.journal.gap("C1") is not None or self.catch_up.is_busy:
                await self.clock.advance(1)
        await settle()

    async def routed_count(self, count: int) -> None:
        """Wait until so many events were routed, while the clock stands still."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.routed) < count:
                self.news.clear()
                await self.news.wait()

    @property
    def texts(self) -> list[str]:
        return [event.text for event in self.routed if isinstance(event, MessagePosted)]


class World:
    """A workspace that stays while supervisors come and go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chat = MemoryChat(page_size=3)
        self.clock = ManualClock(START)
        self.config = Config(slack=SlackSection(allowed_users=(OWNER,)))
        self._count = 0

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Life]:
        """A supervisor from its connection to its end; not yet ``back``."""
        await self.clock.advance(1)
        async with Journal.open(self.path, self.clock) as journal:
            life = Life(journal, self.clock, self.chat, self.config)
            life.catch_up.lost()
            await settle()  # the gap is asked for before anything else
            running = asyncio.create_task(life.catch_up.run(ME))
            try:
                yield life
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    async def say(self, text: str, thread_ts: str | None = None, user: str = OWNER) -> str:
        """A second passes, then somebody writes."""
        await self.clock.advance(1)
        self._count += 1
        ts = f"{self.clock.now().timestamp():.6f}"
        return self.chat.say("C1", user, text, thread_ts=thread_ts, ts=ts)

    def live(self, ts: str) -> MessagePosted:
        """The message as the socket brings it."""
        message = next(m for m in self.chat.messages("C1") if m["ts"] == ts)
        return MessagePosted(
            channel="C1",
            ts=ts,
            user=message["user"],
            text=message["text"],
            thread_ts=message.get("thread_ts"),
        )


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """A world in which one message was answered before everything stopped."""
    made = World(tmp_path / "journal.db")
    async with made.life() as life:
        life.catch_up.back()
        await life.caught_up()
        await life.intake.accept(made.live(await made.say("first")))
        await life.journal.settle(1)
    return made


async def test_a_first_start_takes_nothing_from_the_past(tmp_path: Path) -> None:
    world = World(tmp_path / "journal.db")
    await world.say("long before")
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.routed == []
    await world.say("while away")
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.texts == ["while away"]


async def test_missed_messages_come_once_in_order_over_many_pages_and_late(world: World) -> None:
    said = [await world.say(f"missed {number}") for number in range(10)]
    for _ in range(2):
        async with world.life() as life:
            life.catch_up.back()
            await life.caught_up()
            if said:
                assert life.texts == [f"missed {number}" for number in range(10)]
                assert all(isinstance(event, MessagePosted) and event.late for event in life.routed)
                said = []
            else:
                assert life.routed == []


async def test_an_answer_in_an_old_thread_is_found(world: World) -> None:
    root = world.chat.messages("C1")[0]["ts"]
    await world.clock.advance(3600 * 30)
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        await life.intake.accept(world.live(await world.say("in between", root)))
    reply = await world.say("and now?", root)
    world.chat.find(root)["latest_reply"] = reply
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.texts == ["and now?"]
        assert isinstance(life.routed[0], MessagePosted)
        assert life.routed[0].thread_ts == root


async def test_edits_and_deletions_are_found(world: World) -> None:
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        edited, deleted = await world.say("do A"), await world.say("do B")
        for ts in (edited, deleted):
            await life.intake.accept(world.live(ts))
    world.chat.find(edited).update(text="do C", edited={"user": OWNER, "ts": "1767225700.000000"})
    world.chat.forget(deleted)
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        # Each speaks of a message of its own: which comes first depends on whether they had to wait.
        first, second = sorted(life.routed, key=lambda event: getattr(event, "ts", ""))
        assert isinstance(first, MessageEdited)
        assert isinstance(second, MessageDeleted)
        assert [first.ts, second.ts] == [edited, deleted]
        assert first.text == "do C"


async def test_a_live_message_waits_for_what_was_written_before_it(world: World) -> None:
    await world.say("missed")
    async with world.life() as life:
        world.chat.hold("history")
        life.catch_up.back()
        await life.intake.accept(world.live(await world.say("live")))
        assert life.routed == []
        world.chat.release("history")
        await life.routed_count(2)  # no time passes: the patience with which it waits is another test's
        assert life.texts == ["missed", "live"]


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


async def test_a_stranger_is_refused_once_and_never_runs_later(world: World) -> None:
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        await life.intake.accept(world.live(await world.say("let me in", user="U0GUEST")))
        assert life.refusals == ["U0GUEST"]
    world.config = Config(slack=SlackSection(allowed_users=(OWNER, "U0GUEST")))
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert (life.routed, life.refusals) == ([], [])


async def test_talk_that_was_not_for_us_does_not_become_ours(world: World) -> None:
    world.config = Config(slack=SlackSection(allowed_users=(OWNER,)), agent=AgentSection(mention="mention"))
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert await life.intake.accept(world.live(await world.say("among ourselves"))) == "ignored"
    world.config = Config(slack=SlackSection(allowed_users=(OWNER,)))
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert life.routed == []


async def test_old_messages_are_marked_stale(world: World) -> None:
    await world.say("old")
    await world.clock.advance(3600 * 13)
    await world.say("young")
    async with world.life() as life:
        life.catch_up.back()
        await life.caught_up()
        assert [event.stale for event in life.routed if isinstance(event, MessagePosted)] == [True, False]


class TimedChat(MemoryChat):
    """Notes when history is read."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.moments: list[float] = []

    async def history(
        self, channel: str, *, thread_ts: str | None = None, oldest: str = "", cursor: str = ""
    ) -> Page:
        self.moments.append(self.clock.monotonic())
        return await super().history(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor)


async def test_a_hundred_channels_stay_within_the_rate_limit(tmp_path: Path) -> None:
    clock = ManualClock(START)
    chat = TimedChat(clock)
    config = Config(slack=SlackSection(allowed_users=(OWNER,)))
    async with Journal.open(tmp_path / "journal.db", clock) as journal, Sender(chat, clock, str) as sender:
        life = Life(journal, clock, chat, config)
        life.repos = {f"C{number}": Repo(f"repo{number}", config) for number in range(100)}
        shelf = Shelf(intake=life.intake, journal=journal, router=HoldingRouter(life))
        catch_up = CatchUp(sender, shelf, clock, Random(1), lambda: life.repos)
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


async def test_what_comes_at_once_is_never_late_and_what_comes_again_may_be(world: World) -> None:
    old = world.live(await world.say("old"))
    await world.clock.advance(3600 * 13)
    async with world.life() as life:
        await life.intake.accept(old)
        await life.intake.accept(replace(old, ts="1767225999.000000"), missed=True)
        assert [(e.late, e.stale) for e in life.routed if isinstance(e, MessagePosted)] == [
            (False, False),
            (True, True),
        ]


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
