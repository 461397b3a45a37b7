"""Being told that we are back, over a real journal and through the lives of several supervisors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.chat.absence_notice import AbsenceNotice, ToldChannels
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.slack.api import SLACK_LIMITS
from codebutler.domain.errors import ChatError, ChatOutcomeUnknownError
from codebutler.domain.model import Post, Prompt
from codebutler.domain.refs import ConversationRef
from codebutler.intake.absence import PRESSES_NOT_KEPT
from codebutler.intake.journal import Journal
from tests.clock import ManualClock, settle
from tests.events import posted
from tests.memory_chat import MemoryChat
from tests.notes import Notes
from tests.shown import text_of

DEADLINE_S = 20.0


class World:
    """A workspace that stays while supervisors come and go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock: ManualClock = ManualClock()
        self.chat = MemoryChat()
        self.asking: list[ConversationRef] = []
        self.channels = [ConversationRef("C1"), ConversationRef("C2")]
        self.busy = False
        self.journal: Journal | None = None

    @asynccontextmanager
    async def life(self) -> AsyncIterator[tuple[AbsenceNotice, Journal]]:
        """One supervisor; at its end it has simply vanished, without a last word."""
        async with (
            Journal.open(self.path, self.clock) as journal,
            Sender(self.chat, self.clock, Editor(str), Notes()) as sender,
        ):
            home = AbsenceNotice(
                sender,
                journal,
                self.clock,
                ToldChannels(lambda: self.channels, lambda: self.asking),
                lambda: self.busy,
                journal,
            )
            home.lost()
            running = asyncio.create_task(home.run())
            self.journal = journal
            await self.passes(1)
            try:
                yield home, journal
            finally:
                home.lost()  # else the end would be noted as a last sign of life
                self.journal = None
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    async def passes(self, seconds: float) -> None:
        """Time goes by, and the journal keeps up with it."""
        for _ in range(max(1, int(seconds))):
            await self.clock.advance(1)
            for journal in [self.journal] * 8 if self.journal else []:
                await journal.note("")
                await settle()

    async def accept(self, journal: Journal, channel: str, written_at_s: float) -> None:
        """A message that was written then is on disk now."""
        moment = f"{self.clock.now().timestamp() - self.clock.monotonic() + written_at_s:.6f}"
        event = posted(channel=channel, ref=moment, user="U1", text="hi")
        await journal.append(event, Prompt(text="hi"))

    def told(self, channel: str = "C1") -> list[str]:
        posts = [
            done for done in self.chat.done if done.channel == channel and isinstance(done.operation, Post)
        ]
        return [text_of(done.operation) for done in posts if isinstance(done.operation, Post)]


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """A world in which a supervisor ran for a minute, with a message in each channel, and died."""
    made = World(tmp_path / "journal.db")
    async with made.life() as (home, journal):
        home.back()
        await made.passes(60)
        await made.accept(journal, "C1", made.clock.monotonic())
        await made.passes(40)
    assert made.told() == []
    return made


async def test_a_restart_is_told_once_where_something_happened(world: World) -> None:
    await world.passes(240)
    async with world.life() as (home, journal):
        home.interrupted("C1")
        home.back()
        await world.accept(journal, "C1", world.clock.monotonic() - 100)
        await world.accept(journal, "C1", world.clock.monotonic() - 90)
        await world.passes(60)
        [line] = world.told()
        assert "Back after 4 min: 2 messages" in line
        assert "1 interrupted run asks" in line
        assert world.told("C2") == []
        await world.clock.advance(3600)
        assert len(world.told()) == 1


async def test_where_a_card_waits_it_is_told_that_presses_may_be_lost(world: World) -> None:
    world.chat.limits = replace(SLACK_LIMITS, presses_kept=timedelta(seconds=150))
    world.asking = [ConversationRef("C2")]
    await world.passes(3 * 3600)
    async with world.life() as (home, _):
        home.back()
        await world.passes(60)
        assert world.told("C2") == [f"👋 Back after 3 h. {PRESSES_NOT_KEPT}"]
        assert world.told("C1") == ["👋 Back after 3 h: nothing was missed."]


async def test_a_loop_of_crashes_is_told_once(world: World) -> None:
    for _ in range(6):
        await world.passes(20)
        async with world.life() as (home, journal):
            home.interrupted("C1")
            home.back()
            await world.accept(journal, "C1", world.clock.monotonic() - 10)
            await world.passes(8)
    assert len(world.told()) == 1
    await world.clock.advance(3600)
    async with world.life() as (home, journal):
        home.back()
        await world.accept(journal, "C1", world.clock.monotonic() - 1800)
        await world.passes(30)
    assert len(world.told()) == 2


async def test_one_that_dies_while_it_tells_neither_forgets_nor_repeats(world: World) -> None:
    await world.passes(240)
    world.chat.deliver_then_fail("post", ChatOutcomeUnknownError("no answer", "outcome_unknown"))
    async with world.life() as (home, journal):
        home.back()
        for channel in world.channels:
            await world.accept(journal, channel, world.clock.monotonic() - 100)
        async with asyncio.timeout(DEADLINE_S):
            while not world.told("C1"):
                await world.passes(1)
    assert world.told("C2") == [], "it died before"
    async with world.life() as (home, _journal):
        home.back()
        await world.passes(60)
    assert [len(world.told(channel)) for channel in world.channels] == [1, 1]


async def test_an_outage_of_the_socket_is_told_too(world: World) -> None:
    async with world.life() as (home, journal):
        home.back()
        await world.passes(60)
        home.lost()
        await world.passes(300)
        home.back()
        await world.accept(journal, "C2", world.clock.monotonic() - 100)
        world.busy = True
        await world.passes(30)
        assert world.told("C2") == [], "what was missed is still being fetched"
        await world.accept(journal, "C2", world.clock.monotonic() - 100.5)
        world.busy = False
        await world.passes(10)
        [line] = world.told("C2")
        assert "Back after 5 min: 2 messages" in line
        assert world.told() == ["👋 Back after 5 min: nothing was missed."], "somebody was talking there"


class Awake(ManualClock):
    """A machine that can sleep, and a clock on its wall that can be set."""

    slept_s = 0.0
    ahead = timedelta()

    def boottime(self) -> float:
        return self.monotonic() + self.slept_s

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.parametrize(
    ("slept_s", "words"), [(8 * 3600.0, ["👋 Back after 8 h: nothing was missed."]), (0.0, [])]
)
async def test_a_sleep_is_an_absence_and_a_clock_that_is_set_is_none(
    tmp_path: Path, slept_s: float, words: list[str]
) -> None:
    world = World(tmp_path / "journal.db")
    world.clock = clock = Awake()
    async with world.life() as (home, journal):
        home.back()
        await world.passes(60)
        await world.accept(journal, "C1", 50)
        clock.slept_s, clock.ahead = slept_s, timedelta(hours=8)
        home.lost()
        await world.passes(2)
        home.back()
        await world.passes(60)
        assert world.told() == words


async def test_a_worker_that_dies_alone_is_no_absence(world: World) -> None:
    async with world.life() as (home, _journal):
        home.back()
        await world.passes(60)
        before = len(world.told())
        home.interrupted("C1")
        await world.passes(60)
        home.lost()
        await world.passes(10)
        home.back()
        await world.passes(60)
        assert len(world.told()) == before


async def test_a_channel_that_refuses_it_does_not_keep_it_from_the_others(world: World) -> None:
    await world.passes(240)
    world.chat.fail_next("post", ChatError("archived", "is_archived"))
    async with world.life() as (home, journal):
        home.back()
        for channel in world.channels:
            await world.accept(journal, channel, world.clock.monotonic() - 100)
        await world.passes(60)
    assert [len(world.told(channel)) for channel in world.channels] == [0, 1]
