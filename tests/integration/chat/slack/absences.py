"""Lives of a supervisor with a scripted Slack, and what was said between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from codebutler.chat.slack.catchup import CatchUp, Shelf
from codebutler.config.chats import SlackSection
from codebutler.config.permission import Decision
from codebutler.config.schema import Config
from codebutler.domain.model import Event, MessagePosted, NoRequest, Request
from codebutler.domain.refs import ConversationRef
from codebutler.intake.intake import Intake, Outcome
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from tests.clock import ManualClock, settle
from tests.dispatching import dispatcher
from tests.events import posted
from tests.memory_chat import ME, MemoryChat

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
        self.repos = {ConversationRef("C1"): Repo("sample", config)}
        self._dispatcher = dispatcher(self.taken)
        self.intake = Intake(
            repos=self.repos,
            journal=journal,
            dispatch=self.route,
            refusals=self,
            clock=clock,
        )
        shelf = Shelf(intake=self.intake, journal=journal, dispatcher=self._dispatcher)
        self.catch_up = CatchUp(chat, shelf, clock, Random(1), lambda: self.repos)
        self.news = asyncio.Event()

    def route(self, entry: Entry) -> None:
        """No audit log holds up a prompt here."""
        self._dispatcher.dispatch(replace(entry, request=NoRequest()))

    def taken(self, entry: Entry) -> None:
        self.routed.append(entry.event)
        self.news.set()

    def refused(self, event: Event, request: Request, decision: Decision, *, tell: bool) -> None:
        self.refusals.append(event.user)

    def commanded(self, event: Event, request: Request) -> None:
        self.news.set()

    def counted(self, outcome: Outcome, seconds: float) -> None:
        pass

    def no_space(self, event: Event) -> None:
        raise AssertionError("there is room")

    async def caught_up(self) -> None:
        """Wait until no gap is left and all was looked at; the clock runs meanwhile."""
        async with asyncio.timeout(DEADLINE_S):
            while await self.journal.gap("C1") is not None or self.catch_up.is_busy:
                await self.clock.advance(5)
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
        return posted(
            channel="C1",
            ref=ts,
            user=message["user"],
            text=message["text"],
            thread=message.get("thread_ts"),
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
