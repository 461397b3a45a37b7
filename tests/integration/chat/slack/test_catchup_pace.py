"""A busy workspace after an outage: what is new is not kept waiting by what may have changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import chain, product
from pathlib import Path
from random import Random

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import HistoryPage
from codebutler.chat.slack.catchup import CatchUp, Shelf
from codebutler.config.chats import SlackSection
from codebutler.config.schema import Config
from codebutler.domain.model import MessageEdited, MessagePosted
from codebutler.domain.refs import ConversationRef
from codebutler.intake.journal import Journal
from codebutler.intake.repos import Repo
from tests.clock import ManualClock
from tests.dispatching import unused
from tests.events import posted
from tests.integration.chat.slack.absences import DEADLINE_S, OWNER, START, Life
from tests.memory_chat import ME, MemoryChat
from tests.notes import Notes

CHANNELS, THREADS = 20, 8


class Busy:
    """Many channels with many threads, and a supervisor whose calls are limited as Slack's."""

    def __init__(self, journal: Journal, chat: MemoryChat, clock: ManualClock, sender: Sender) -> None:
        config = Config(slack=SlackSection(allowed_users=(OWNER,)))
        self.chat = chat
        self.clock = clock
        self.life = Life(journal, clock, chat, config)
        self.life.repos.clear()
        self.life.repos.update(
            {ConversationRef(f"C{number}"): Repo(f"repo{number}", config) for number in range(CHANNELS)}
        )
        shelf = Shelf(intake=self.life.intake, journal=journal, dispatcher=unused())
        self.catch_up = CatchUp(sender.background, shelf, clock, Random(1), lambda: self.life.repos)

    def said(self, channel: str, root: str | None = None) -> MessagePosted:
        """Somebody writes; returns the message as the socket would bring it."""
        ts = f"{self.clock.now().timestamp() + len(self.chat.messages(channel)) / 1000:.6f}"
        self.chat.say(channel, OWNER, f"message {ts}", thread_ts=root, ts=ts)
        return posted(channel=channel, ref=ts, user=OWNER, text=f"message {ts}", thread=root)

    async def until_routed(self, keys: set[str]) -> float:
        """The clock runs until then; returns the seconds it took."""
        return await self.until(lambda: keys <= self.routed)

    async def until(self, condition: Callable[[], bool]) -> float:
        """The clock runs until then; returns the seconds it took."""
        began_s = self.clock.monotonic()
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await self.clock.advance(1)
                await self.life.journal.high_water("C1")  # lets the journal's thread come first
        return self.clock.monotonic() - began_s

    async def until_no_gap(self) -> float:
        """The clock runs until all has been looked at; returns the seconds it took."""
        began_s = self.clock.monotonic()
        async with asyncio.timeout(DEADLINE_S):
            for channel in self.life.repos:
                while await self.life.journal.gap(channel) is not None:
                    await self.clock.advance(5)
        await self.until(lambda: not self.catch_up.is_busy)
        return self.clock.monotonic() - began_s

    @property
    def routed(self) -> set[str]:
        return {event.key for event in self.life.routed}

    async def outage(self, thread: int = 0) -> set[str]:
        """In each channel somebody writes, and somebody in the ``thread``-th thread; returns the messages' keys."""
        self.catch_up.lost()
        roots = [(channel, self.chat.messages(channel)[thread]["ts"]) for channel in self.life.repos]
        missed = {self.said(channel).key for channel, _ in roots}
        missed |= {self.said(channel, root).key for channel, root in roots}
        await self.clock.advance(10)
        return missed


@asynccontextmanager
async def busy(tmp_path: Path) -> AsyncIterator[Busy]:
    """After some hours in which every thread was written in, and a quiet moment."""
    clock, chat = ManualClock(START), MemoryChat()
    async with (
        Journal.open(tmp_path / "journal.db", clock) as journal,
        Sender(chat, clock, Editor(str), Notes()) as sender,
    ):
        made = Busy(journal, chat, clock, sender)
        running = asyncio.create_task(made.catch_up.run(ME))
        made.catch_up.lost()
        made.catch_up.back()
        await made.until(lambda: not made.catch_up.is_busy)
        roots = [made.said(channel) for channel in made.life.repos for _ in range(THREADS)]
        replies = [made.said(root.channel, root.ref) for root in roots]
        await clock.advance(120)
        for event in chain(roots, replies, [made.said(channel) for channel in made.life.repos]):
            assert await made.life.intake.accept(event) == "accepted"
        await clock.advance(300)
        try:
            yield made
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def test_what_is_new_comes_within_a_minute_however_many_threads_there_are(tmp_path: Path) -> None:
    async with busy(tmp_path) as b:
        reply = [m for m in b.chat.messages("C19") if m.get("thread_ts")][-1]
        missed = await b.outage()
        reply["edited"] = {"user": OWNER, "ts": f"{b.clock.now().timestamp():.6f}"}
        b.chat.find(reply["ts"]).update(reply)
        b.catch_up.back()
        assert await b.until_routed(missed) < 60
        await b.until_no_gap()
        edits = [event.ref for event in b.life.routed if isinstance(event, MessageEdited)]
        assert edits == [reply["ts"]]


async def test_outage_after_outage_what_is_new_comes_soon(tmp_path: Path) -> None:
    """Faster than what was changed can be found out: that waits for a calmer hour."""
    async with busy(tmp_path) as b:
        for thread in range(6):
            missed = await b.outage(thread)
            b.catch_up.back()
            assert await b.until_routed(missed) < 60
        await b.until_no_gap()


async def test_an_answer_that_slack_gave_up_while_other_messages_came_is_found(tmp_path: Path) -> None:
    """The first one in its thread, and minutes before the connection was lost."""
    async with busy(tmp_path) as b:
        root = b.said("C3")
        assert await b.life.intake.accept(root) == "accepted"
        await b.clock.advance(60)
        given_up = b.said("C3", root.ref)
        await b.clock.advance(180)
        assert await b.life.intake.accept(b.said("C3")) == "accepted"
        await b.outage()
        b.catch_up.back()
        await b.until_routed({given_up.key})


async def test_a_moment_costs_a_call_a_channel_and_what_hides_in_old_threads_is_found_later(
    tmp_path: Path,
) -> None:
    """20 channels of 2,000 messages in the last days; the line is cut three times within minutes."""
    clock, chat = ManualClock(START), MemoryChat(page_size=200)
    async with (
        Journal.open(tmp_path / "journal.db", clock) as journal,
        Sender(chat, clock, Editor(str), Notes()) as sender,
    ):
        b = Busy(journal, chat, clock, sender)
        running = asyncio.create_task(b.catch_up.run(ME))
        b.catch_up.lost()
        b.catch_up.back()
        await b.until(lambda: not b.catch_up.is_busy)
        began_s = clock.now().timestamp()
        await clock.advance(2000 * 60)
        for number, channel in product(range(2000), b.life.repos):
            ts = f"{began_s + number * 60:.6f}"
            chat.say(channel, OWNER, "x", ts=ts)
            # What the journal knows of those in between decides nothing here.
            if number == 0 or number > 1930:
                message = posted(channel=channel, ref=ts, user=OWNER, text="x")
                assert await b.life.intake.accept(message) == "accepted"
        hidden = b.said("C7", f"{began_s + 30 * 60:.6f}").key
        for _ in range(3):
            chat.calls.clear()
            b.catch_up.lost()
            missed = {b.said(channel).key for channel in b.life.repos}
            b.catch_up.back()
            assert await b.until_routed(missed) < 30
            assert await b.until(lambda: not b.catch_up.is_busy) < 30
            assert chat.calls == ["history"] * CHANNELS
            await clock.advance(60)
        assert hidden not in b.routed
        chat.calls.clear()
        await b.until_no_gap()
        assert hidden in b.routed
        assert len(chat.calls) == 11 * CHANNELS + 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_newest_pages_of_all_channels_are_read_before_older_ones(tmp_path: Path) -> None:
    """After a restart, when all threads are looked at; and in each channel the newest first."""
    async with busy(tmp_path) as b:
        pages = Pages(b.chat)
        async with Sender(pages, b.clock, Editor(str), Notes()) as sender:
            shelf = Shelf(intake=b.life.intake, journal=b.life.journal, dispatcher=unused())
            b.chat.page_size = 4
            missed = await b.outage()
            b.catch_up = CatchUp(sender.background, shelf, b.clock, Random(1), lambda: b.life.repos)
            running = asyncio.create_task(b.catch_up.run(ME))
            b.catch_up.lost()
            b.catch_up.back()
            await b.until_routed(missed)
            await b.until_no_gap()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
    first, later = pages.read[:CHANNELS], pages.read[CHANNELS:]
    assert sorted(channel for channel, _ in first) == sorted(b.life.repos)
    assert not any(cursor for _, cursor in first)
    assert len([cursor for _, cursor in later if cursor]) >= CHANNELS


class Pages(MemoryChat):
    """Shows what another chat holds, and notes which pages of channels were read."""

    def __init__(self, chat: MemoryChat) -> None:
        super().__init__()
        self.read: list[tuple[str, str]] = []
        self._chat = chat

    async def history(
        self, channel: str, *, thread: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        if thread is None:
            self.read.append((channel, cursor))
        return await self._chat.history(channel, thread=thread, since_s=since_s, cursor=cursor)
