"""A chat that has nothing beside what all chats have: what is lost on the way is sent again, and says so.

The sender dies at every point of its way, once and twice: nothing is lost, and nothing comes twice in silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from codebutler.chat.delivery.outgoing import AGAIN, NOT_HERE, Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import CAPABILITIES, ChannelMoved, HistoryPage, Limits
from codebutler.domain.errors import ChatError, ChatOutcomeUnknownError
from codebutler.domain.message import ApprovalCard, Message, PermissionRequest, Question, QuestionCard, said
from codebutler.domain.model import Operation, Post, Update, Upload
from codebutler.domain.refs import MessageRef
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.notes import Notes
from tests.shown import text_of
from tests.unit.chat.delivery.test_exactly_once import UNKNOWNS, Ledger, one_life, script
from tests.unit.chat.delivery.test_streams import DIRECT, HOME, Detour

C = "C1"
LOST = ChatOutcomeUnknownError("time-out")


class Fate:
    """Ends the process at its ``deadly`` step: what it waits for there never comes."""

    def __init__(self) -> None:
        self.deadly = 0
        self.steps = 0
        self.has_struck = asyncio.Event()

    async def step(self) -> None:
        self.steps += 1
        if self.steps == self.deadly:
            self.has_struck.set()
            await asyncio.Event().wait()


class FatedNotes(Notes):
    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self._fate = fate

    async def keep_note(self, name: str, value: str) -> None:
        await self._fate.step()
        await super().keep_note(name, value)
        await self._fate.step()


class FatedChat(MemoryChat):
    """Each of its calls may be the last thing the process does, before its effect or after."""

    def __init__(self, fate: Fate) -> None:
        super().__init__(lacks=CAPABILITIES)
        self.limits = Limits(workspace={}, channel={})
        self._fate = fate

    async def post(self, channel: str, post: Post, op_id: str) -> MessageRef:
        await self._fate.step()
        ts = await super().post(channel, post, op_id)
        await self._fate.step()
        return ts

    async def update(self, channel: str, update: Update, op_id: str) -> None:
        await self._fate.step()
        await super().update(channel, update, op_id)
        await self._fate.step()

    async def upload(self, upload: Upload) -> str:
        await self._fate.step()
        file_id = await super().upload(upload)
        await self._fate.step()
        return file_id

    async def share(self, channel: str, upload: Upload, file_id: str) -> None:
        await self._fate.step()
        await super().share(channel, upload, file_id)
        await self._fate.step()


class Stage:
    """A bare chat and a disk, and one sender after the other."""

    def __init__(self) -> None:
        self.fate = Fate()
        self.chat, self.clock, self.notes = FatedChat(self.fate), ManualClock(), FatedNotes(self.fate)
        self.root = self.chat.say(C, "U1", "question")

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Sender]:
        async with Sender(self.chat, self.clock, Editor(str), rng=Random(1), notes=self.notes) as sender:
            yield sender

    async def submit(self, operation: Operation, *, unsure: bool = False) -> str:
        """One life, in which the worker waits to hear what became of it; "" where fate strikes before."""
        task = asyncio.create_task(self._live(operation, unsure=unsure))
        for _ in range(600):
            if task.done() or self.fate.has_struck.is_set():
                break
            await self.clock.advance(1)
            await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return "" if task.cancelled() else task.result()

    async def _live(self, operation: Operation, *, unsure: bool) -> str:
        async with self.life() as sender:
            return await sender.submit(C, "op", operation, unsure=unsure, lasting=True)

    async def deliver(self, operation: Operation, *deaths: int) -> str:
        """With a death at each of these steps, counted from the start of its life."""
        unsure = False
        for deadly in deaths:
            self.fate.deadly, self.fate.steps = deadly, 0
            if ts := await self.submit(operation, unsure=unsure):
                return ts
            self.fate.has_struck.clear()
            unsure = True
        self.fate.deadly = 0
        return await self.submit(operation, unsure=unsure)

    def shown(self, what: str) -> list[str]:
        """What shows it, with all the rest of that message."""
        return [text for text in self.chat.texts(C) if what in text]


DEATHS = [(), *((first,) for first in range(1, 9)), *((a, b) for a in range(1, 7) for b in range(1, 13))]


@pytest.mark.parametrize("outcome", ["done", "lost", "not done"])
@pytest.mark.parametrize("deaths", DEATHS, ids=str)
async def test_a_post_is_never_lost_and_never_said_twice_in_silence(
    deaths: tuple[int, ...], outcome: str
) -> None:
    stage = Stage()
    if outcome == "lost":
        stage.chat.deliver_then_fail("post", LOST)
    elif outcome == "not done":
        stage.chat.fail_next("post", LOST)
    ts = await stage.deliver(Post(message=said("the answer"), thread=stage.root), *deaths)
    copies = stage.shown("the answer")
    assert 1 <= len(copies) <= 2
    assert sum(AGAIN not in copy for copy in copies) <= 1
    assert "the answer" in stage.chat.find(ts)["text"]
    strays = [text for text in stage.chat.texts(C) if "the answer" not in text]
    assert set(strays) <= {AGAIN}


@pytest.mark.parametrize("outcome", ["done", "lost"])
@pytest.mark.parametrize("deaths", DEATHS, ids=str)
async def test_a_file_is_never_lost_and_never_sent_twice_in_silence(
    deaths: tuple[int, ...], outcome: str
) -> None:
    stage = Stage()
    if outcome == "lost":
        stage.chat.deliver_then_fail("share", LOST)
    await stage.deliver(Upload(filename="a.md", content=b"a", comment="see", thread=stage.root), *deaths)
    files = stage.shown("see")
    assert files
    assert sum(AGAIN not in text for text in files) <= 1


async def test_what_goes_well_costs_one_call_and_says_nothing_of_it() -> None:
    stage = Stage()
    assert await stage.deliver(Post(message=said("the answer"), thread=stage.root))
    assert stage.chat.calls == ["post"]
    assert stage.chat.texts(C) == ["the answer"]


async def test_what_was_never_handed_over_is_simply_sent() -> None:
    stage = Stage()
    async with stage.life():
        """A first life, which notes what it hands over."""
    assert await stage.submit(Post(message=said("the answer"), thread=stage.root), unsure=True)
    assert stage.chat.texts(C) == ["the answer"]


async def test_what_is_known_to_have_arrived_is_not_sent_again() -> None:
    stage = Stage()
    post = Post(message=said("the answer"), thread=stage.root)
    ts = await stage.deliver(post)
    assert await stage.submit(post, unsure=True) == ts
    assert stage.chat.texts(C) == ["the answer"]


async def test_a_place_that_somebody_takes_away_is_kept_anew() -> None:
    stage = Stage()
    stage.chat.fail_next("post", LOST)
    stage.chat.fail_next("update", ChatError(code="message_not_found"))
    ts = await stage.deliver(Post(message=said("the answer"), thread=stage.root))
    assert stage.chat.texts(C) == [AGAIN, f"{AGAIN}\n\nthe answer"]
    assert "the answer" in stage.chat.find(ts)["text"]


async def test_progress_that_nobody_needs_any_more_is_not_sent_again() -> None:
    stage = Stage()
    progress = Post(message=said("working"), thread=stage.root, value="progress", outdated=True)
    assert await stage.submit(progress, unsure=True) == ""
    assert stage.chat.texts(C) == []


async def test_cards_that_are_sent_again_say_so_and_can_be_decided() -> None:
    approval = Message(card=ApprovalCard((PermissionRequest(id="r1", texts=("May I?",)),)))
    question = Message(card=QuestionCard((Question(id="q1", text="Which?"),)))
    for message in (approval, question):
        stage = Stage()
        stage.chat.deliver_then_fail("post", LOST)
        await stage.deliver(Post(message=message, thread=stage.root))
        first, again = stage.chat.texts(C)
        assert AGAIN not in first
        assert AGAIN in again
        assert again.replace(AGAIN, "").split() == first.split()


async def test_a_thousand_unknown_outcomes_lose_nothing_and_every_second_copy_says_so() -> None:
    rng, chat, clock = Random(20261123), MemoryChat(lacks=CAPABILITIES), ManualClock()
    ledger, notes = Ledger(chat, rng), Notes()
    script(chat, rng)
    lives = 0
    while len(ledger.marked) < UNKNOWNS:
        await one_life(ledger, chat, notes, clock, first=lives == 0, lasts_s=rng.uniform(20, 90))
        lives += 1
        assert lives < 200, f"{len(ledger.marked)} of {UNKNOWNS} were sent"
    shown = [
        message["text"]
        for number in range(25)
        for message in chat.messages(f"C{number}")
        if "bot_id" in message
    ]
    for channel, operation in ledger.wanted.values():
        if isinstance(operation, Post):
            text = text_of(operation)
            copies = [each for each in shown if each.split("\n\n")[-1] == text]
            assert copies, (channel, text)
            assert sum(AGAIN not in each for each in copies) <= 1


async def test_a_closed_channel_is_waited_for_in_every_chat() -> None:
    stage = Stage()
    stage.chat.fail_next("post", ChatError(code="not_in_channel"))
    async with stage.life() as sender:
        task = asyncio.create_task(
            sender.submit(C, "op", Post(message=said("the answer"), thread=stage.root), lasting=True)
        )
        await stage.clock.advance(1)
        assert "add it there" in sender.channels.trouble(C)
        sender.channels.moved(ChannelMoved(C, "back"))
        await stage.clock.advance(1)
        assert await task
    assert stage.chat.texts(C) == ["the answer"]


async def test_what_is_for_one_person_alone_is_shown_to_nobody_else() -> None:
    stage = Stage()
    assert await stage.deliver(Post(message=said("your key"), thread=stage.root, only_for="U1"))
    assert stage.chat.texts(C) == [NOT_HERE]


async def test_in_a_direct_conversation_it_is_simply_said() -> None:
    chat, clock = MemoryChat(lacks=("ephemeral",)), ManualClock()
    root = chat.say(DIRECT, "U1", "question")
    async with Sender(chat, clock, Editor(str), Notes(), rng=Random(1), direct=Detour()) as sender:
        await sender.submit(HOME, "op", Post(message=said("your key"), thread=root, only_for="U1"))
    assert chat.texts(DIRECT) == ["your key"]


async def test_a_whisper_that_may_be_one_again_says_so() -> None:
    chat, clock = MemoryChat(), ManualClock()
    chat.deliver_then_fail("whisper", LOST)
    async with Sender(chat, clock, Editor(str), rng=Random(1), notes=Notes()) as sender:
        task = asyncio.create_task(sender.submit(C, "op", Post(message=said("psst"), only_for="U1")))
        await clock.advance(10)
        assert await task
    assert [text_of(done.operation) for done in chat.done if isinstance(done.operation, Post)] == [
        "psst",
        f"{AGAIN}\n\npsst",
    ]


@pytest.mark.parametrize("lacks", ["streams", "look_up"])
async def test_nothing_is_streamed_where_it_cannot_be_or_could_not_be_found_again(lacks: str) -> None:
    chat, clock = MemoryChat(lacks=(lacks,)), ManualClock()
    root = chat.say(DIRECT, "U1", "question")
    async with Sender(chat, clock, Editor(str), rng=Random(1), direct=Detour(), notes=Notes()) as sender:
        sender.written(DIRECT, root, "It is all", whole=False)
        await clock.advance(10)
        assert await sender.submit(HOME, "op", Post(message=said("Fine."), thread=root, in_place=True))
    assert chat.calls == ["post"]


async def test_without_history_nothing_was_said() -> None:
    stage = Stage()
    async with stage.life() as sender:
        assert await sender.history(C) == HistoryPage()
        assert await sender.background.history(C) == HistoryPage()
    assert stage.chat.calls == []
