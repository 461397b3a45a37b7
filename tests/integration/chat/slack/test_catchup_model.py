"""Any history, any cut: what was said while nobody listened comes once, and in order within its conversation."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import HistoryPage
from codebutler.chat.slack.answers import ts_at
from codebutler.chat.slack.catchup import CatchUp, Shelf
from codebutler.chat.slack.history import history_message
from codebutler.config.chats import SlackSection
from codebutler.config.schema import AgentSection, Config
from codebutler.domain.model import MessagePosted
from codebutler.domain.refs import ConversationRef
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.intake.repos import Repo
from tests.clock import ManualClock, settle
from tests.dispatching import unused
from tests.events import posted
from tests.integration.chat.slack.absences import DEADLINE_S, OWNER, START, Life
from tests.memory_chat import ME, MemoryChat
from tests.notes import Notes

CHANNELS = (ConversationRef("C1"), ConversationRef("C2"))
Scope = Literal["thread", "channel"]


@dataclass(frozen=True)
class Said:
    """Seconds after the one before; ``root``: in the thread of which earlier message, None for a new one."""

    pause_s: int
    channel: str
    root: int | None
    live: bool
    broadcast: bool


SAID = st.builds(
    Said,
    st.sampled_from([1, 40, 4000, 10_000]),
    st.sampled_from(CHANNELS),
    st.none() | st.integers(0, 5),
    st.booleans(),
    st.booleans(),
)


class CutChat(MemoryChat):
    """History answers ``left`` more times, then never."""

    left = 1_000_000

    async def history(
        self, channel: str, *, thread: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        if self.left == 0:
            await asyncio.Event().wait()
        self.left -= 1
        page = await super().history(channel, thread=thread, since_s=since_s, cursor=cursor)
        if thread is not None:
            return page
        # A reply that was sent to the channel too stands among its messages.
        end = min([m.ref for m in page.messages], default="") if page.next_cursor else ts_at(since_s)
        also = [m for m in self.messages(channel) if m.get("subtype") and m["ts"] > max(end, ts_at(since_s))]
        return HistoryPage(
            messages=(*page.messages, *map(history_message, also)), next_cursor=page.next_cursor
        )


class Told(Life):
    """Remembers what was handed on, to settle it as a worker would."""

    def __init__(self, journal: Journal, clock: ManualClock, chat: MemoryChat, config: Config) -> None:
        super().__init__(journal, clock, chat, config)
        self.entries: list[Entry] = []

    def taken(self, entry: Entry) -> None:
        super().taken(entry)
        self.entries.append(entry)


class Town:
    """Two channels, and who is told of what is said there."""

    def __init__(self, path: Path, scope: Scope, page_size: int) -> None:
        self.path = path
        self.clock = ManualClock(START)
        self.chat = CutChat(page_size=page_size)
        self.config = Config(slack=SlackSection(allowed_users=(OWNER,)), agent=AgentSection(scope=scope))
        self.taken: list[MessagePosted] = []
        self.firsts: dict[str, list[str]] = {channel: [] for channel in CHANNELS}

    async def say(self, said: Said) -> MessagePosted:
        await self.clock.advance(said.pause_s)
        ts, firsts = f"{self.clock.now().timestamp():.6f}", self.firsts[said.channel]
        root = firsts[said.root % len(firsts)] if said.root is not None and firsts else None
        self.chat.say(said.channel, OWNER, "x", thread_ts=root, ts=ts)
        if root is None:
            firsts.append(ts)
        elif said.broadcast:
            self.chat.find(ts)["subtype"] = "thread_broadcast"
        return posted(channel=said.channel, ref=ts, user=OWNER, text="x", thread=root)

    async def listen(self, calls: int, live: list[Said]) -> list[MessagePosted]:
        """A life in which history answers ``calls`` times; ``live`` is said as soon as it listens again."""
        self.chat.left = calls
        said = []
        async with (
            Journal.open(self.path, self.clock) as journal,
            Sender(self.chat, self.clock, Editor(str), Notes()) as sender,
        ):
            life = Told(journal, self.clock, self.chat, self.config)
            life.repos.clear()
            life.repos.update({channel: Repo(channel, self.config) for channel in CHANNELS})
            shelf = Shelf(intake=life.intake, journal=journal, dispatcher=unused())
            catch_up = CatchUp(sender.background, shelf, self.clock, Random(1), lambda: life.repos)
            catch_up.lost()
            await settle()
            await life.intake.resume()
            running = asyncio.create_task(catch_up.run(ME))
            catch_up.back()
            for each in live:
                said.append(await self.say(each))
                await life.intake.accept(said[-1])
            async with asyncio.timeout(DEADLINE_S):
                while catch_up.is_busy and self.chat.left:
                    await self.clock.advance(1)
                    await journal.high_water("C1")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            for entry in life.entries:
                await journal.settle(entry.seq)
            self.taken += [event for event in life.routed if isinstance(event, MessagePosted)]
        return said


@settings(deadline=None, max_examples=25)
@given(
    st.sampled_from(["thread", "channel"]),
    st.sampled_from([2, 5, 999]),
    st.lists(st.tuples(st.lists(SAID, max_size=9), st.integers(0, 12)), min_size=1, max_size=4),
)
def test_whatever_was_said_and_whenever_a_life_ends(
    scope: Scope, page_size: int, absences: list[tuple[list[Said], int]]
) -> None:
    with TemporaryDirectory() as place:
        asyncio.run(_play(Town(Path(place) / "journal.db", scope, page_size), absences))


async def _play(town: Town, absences: list[tuple[list[Said], int]]) -> None:
    await town.listen(1_000_000, [])
    said = []
    for spoken, calls in absences:
        said += [await town.say(each) for each in spoken if not each.live]
        said += await town.listen(calls, [each for each in spoken if each.live and each.pause_s == 1])
    said += await town.listen(1_000_000, [])
    assert sorted(event.key for event in town.taken) == sorted(event.key for event in said)


@settings(deadline=None, max_examples=25)
@given(st.sampled_from(["thread", "channel"]), st.sampled_from([2, 5, 999]), st.lists(SAID, max_size=20))
def test_in_every_conversation_the_oldest_comes_first(
    scope: Scope, page_size: int, spoken: list[Said]
) -> None:
    async def play(town: Town) -> None:
        await town.listen(1_000_000, [])
        for each in spoken:
            await town.say(each)
        await town.listen(1_000_000, [])
        assert len(town.taken) == len(spoken)
        order = sorted(town.taken, key=line)
        for _, events in groupby(order, key=line):
            stamps = [event.ref for event in events]
            assert stamps == sorted(stamps)

    def line(event: MessagePosted) -> str:
        return event.channel if scope == "channel" else f"{event.channel} {event.root}"

    with TemporaryDirectory() as place:
        asyncio.run(play(Town(Path(place) / "journal.db", scope, page_size)))
