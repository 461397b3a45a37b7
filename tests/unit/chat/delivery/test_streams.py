"""Answers that are streamed while they are written, and then stand once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from codebutler.chat.delivery.leftovers import NOTE
from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.delivery.streams import LIFE_S, LINGER_S, PACE_S
from codebutler.chat.slack.answers import op_id_of
from codebutler.domain.errors import (
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.message import said
from codebutler.domain.model import Post
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.notes import Notes

HOME, DIRECT = "C1", "D1"
WHOLE = "It is all fine and well."
LOST = ChatOutcomeUnknownError("lost", "outcome_unknown")


class Everything(dict[tuple[str, str], str]):
    """Every item of the channel."""

    def __bool__(self) -> bool:
        return True

    def get(self, key: tuple[str, str], default: str) -> str:  # type: ignore[override]  # always an item
        return DIRECT if key[0] == HOME else default


class Detour:
    """Everything of the channel stands in the conversation."""

    def __init__(self) -> None:
        self.places = Everything()

    async def posted(self, channel: str, place: str, ts: str) -> None:
        """Known by its channel."""


class Stage:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.chat = MemoryChat()
        self.notes = Notes()
        self.thread = self.chat.say(DIRECT, "U1", "how is it?")

    @asynccontextmanager
    async def life(self) -> AsyncIterator[Sender]:
        sender = Sender(
            self.chat, self.clock, Editor(self._redact), rng=Random(1), direct=Detour(), notes=self.notes
        )
        async with sender:
            yield sender

    def _redact(self, text: str) -> str:
        return text.replace("hunter two", "[redacted]")

    @property
    def said(self) -> list[str]:
        return self.chat.texts(DIRECT)

    async def write(self, sender: Sender, text: str) -> None:
        sender.written(DIRECT, self.thread, text, whole=False)
        await self.passes(PACE_S)

    async def passes(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await settle()

    def answer(self, sender: Sender, op_id: str = "op", *, unsure: bool = False) -> asyncio.Task[str]:
        post = Post(message=said(WHOLE), thread=self.thread, in_place=True)
        return asyncio.create_task(sender.submit(HOME, op_id, post, unsure=unsure))

    async def answered(self, sender: Sender) -> str:
        task = self.answer(sender)
        while not task.done():
            await self.passes(1)
        sender.turn_over(DIRECT, self.thread)
        await self.passes(60)
        return task.result()

    def is_clean(self) -> bool:
        """Nothing is left to be taken away, now or later."""
        return self.notes.kept.get(NOTE, "[]") == "[]"


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_an_answer_grows_and_is_then_itself(stage: Stage) -> None:
    async with stage.life() as sender:
        await stage.write(sender, "It is all f")
        assert stage.said == ["It is all"]
        await stage.write(sender, "It is all fine an")
        assert stage.said == ["It is all fine"]
        streamed = set(stage.chat.streaming)
        ts = await stage.answered(sender)
        assert {ts} == streamed
        assert stage.said == [WHOLE]
        assert op_id_of(stage.chat.find(ts)) == "op"
        assert "post" not in stage.chat.calls
        assert stage.is_clean()


async def test_each_turn_of_a_thread_has_its_own(stage: Stage) -> None:
    async with stage.life() as sender:
        for number in (1, 2):
            await stage.write(sender, "It is all f")
            task = stage.answer(sender, f"op-{number}")
            await stage.passes(5)
            sender.turn_over(DIRECT, stage.thread)
            await stage.passes(60)
            assert task.done()
        assert stage.said == [WHOLE, WHOLE]
        assert stage.chat.calls.count("start_stream") == 2


async def test_blocks_follow_one_another_and_nobody_is_pinged_and_no_secret_leaves(stage: Stage) -> None:
    async with stage.life() as sender:
        await stage.write(sender, "See <!channel> hunter two and")
        sender.written(DIRECT, stage.thread, "See <!channel> hunter two and more.", whole=True)
        await stage.write(sender, "Next o")
        (said,) = stage.said
        assert said.startswith("See <")
        assert "<!channel>" not in said
        assert "[redacted] and more.\n\nNext" in said


async def test_slack_is_called_no_more_often_than_it_allows(stage: Stage) -> None:
    async with stage.life() as sender:
        for number in range(600):
            sender.written(DIRECT, stage.thread, "word " * (number + 1), whole=False)
            await stage.passes(0.1)
        assert stage.chat.calls.count("append_stream") <= 60 / PACE_S


async def test_an_old_stream_is_ended_before_slack_does(stage: Stage) -> None:
    async with stage.life() as sender:
        await stage.write(sender, "It is a")
        await stage.passes(LIFE_S)
        assert stage.chat.streaming == set()
        await stage.write(sender, "It is all f")
        assert stage.said == ["It is"]
        await stage.answered(sender)
        assert stage.said == [WHOLE]


async def test_an_answer_below_something_else_is_posted_there(stage: Stage) -> None:
    async with stage.life() as sender:
        await stage.write(sender, "It is a")
        card = asyncio.create_task(
            sender.submit(HOME, "card", Post(message=said("May I?"), thread=stage.thread))
        )
        await stage.passes(3)
        await card
        await stage.answered(sender)
        assert stage.said == ["May I?", WHOLE]
        assert stage.is_clean()


async def test_a_turn_without_an_answer_leaves_nothing_of_it(stage: Stage) -> None:
    async with stage.life() as sender:
        await stage.write(sender, "It is a")
        sender.turn_over(DIRECT, stage.thread)
        await stage.passes(LINGER_S + 5)
        assert stage.said == []
        assert stage.is_clean()


async def test_what_begins_anew_is_not_shown_until_it_is_whole(stage: Stage) -> None:
    async with stage.life() as sender:
        await stage.write(sender, "It is a")
        await stage.write(sender, "No, it is not so")
        assert stage.said == ["It is"]
        await stage.answered(sender)
        assert stage.said == [WHOLE]


async def test_a_full_disk_means_no_stream_but_an_answer(stage: Stage) -> None:
    stage.notes.is_full = True
    async with stage.life() as sender:
        await stage.write(sender, "It is a")
        assert stage.said == []
        await stage.answered(sender)
        assert stage.said == [WHOLE]


async def test_a_workspace_without_streams_is_asked_once(stage: Stage) -> None:
    stage.chat.fail_next("start_stream", ChatError(code="missing_scope"), times=9)
    async with stage.life() as sender:
        for _ in range(3):
            await stage.write(sender, "It is a")
            sender.turn_over(DIRECT, stage.thread)
            await stage.passes(LINGER_S + 5)
        assert stage.chat.calls.count("start_stream") == 1


REFUSED, DOWN, LIMITED = (
    ChatError(code="message_not_found"),
    ChatUnreachableError("down"),
    ChatRateLimitedError(3),
)
METHODS = ("start_stream", "append_stream", "stop_stream", "replace", "delete")
FAULTS: list[tuple[str, Callable[[MemoryChat, str], None]]] = [
    ("refused", lambda chat, method: chat.fail_next(method, REFUSED)),
    ("down", lambda chat, method: chat.fail_next(method, DOWN)),
    ("limited", lambda chat, method: chat.fail_next(method, LIMITED)),
    ("lost before", lambda chat, method: chat.fail_next(method, LOST)),
    ("lost after", lambda chat, method: chat.deliver_then_fail(method, LOST)),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[name for name, _ in FAULTS])
async def test_whatever_fails_the_answer_stands_once_and_alone(
    stage: Stage, method: str, name: str, fault: Callable[[MemoryChat, str], None]
) -> None:
    if (method, name) == ("delete", "refused"):
        fault = FAULTS[1][1]  # what Slack says is gone is gone
    async with stage.life() as sender:
        fault(stage.chat, method)
        await stage.write(sender, "It is a")
        await stage.write(sender, "It is all f")
        if method == "delete":
            stage.chat.fail_next("replace", REFUSED)
        ts = await stage.answered(sender)
        assert stage.said == [WHOLE], name
        assert op_id_of(stage.chat.find(ts)) == "op"
        assert stage.is_clean()


async def test_an_answer_waits_for_no_call_that_hangs(stage: Stage) -> None:
    async with stage.life() as sender:
        await stage.write(sender, "It is a")
        stage.chat.hold("append_stream")
        await stage.write(sender, "It is all f")
        task = stage.answer(sender)
        await stage.passes(5)
        assert task.done()
        assert WHOLE in stage.said
        stage.chat.release("append_stream")
        await stage.passes(60)
        assert stage.said == [WHOLE]


def _die_at(chat: MemoryChat, method: str, *, is_done: bool) -> asyncio.Event:
    """From now on nothing comes back from ``method``; ``is_done``: it takes effect. Set when it was called."""
    called, real = asyncio.Event(), getattr(chat, method)

    async def last(*args: Any) -> None:
        if is_done:
            await real(*args)
        called.set()
        await asyncio.Event().wait()

    setattr(chat, method, last)
    return called


@pytest.mark.parametrize("method", [*METHODS, "post"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
async def test_whenever_we_die_the_next_life_leaves_one_answer(
    stage: Stage, method: str, *, is_done: bool
) -> None:
    if method in ("post", "delete"):
        stage.chat.fail_next("replace", REFUSED)
    async with stage.life() as sender:
        dying = _die_at(stage.chat, method, is_done=is_done)
        await stage.write(sender, "It is a")
        await stage.write(sender, "It is all f")
        task = stage.answer(sender)
        while not dying.is_set():
            await stage.passes(1)
    await asyncio.gather(task, return_exceptions=True)
    delattr(stage.chat, method)
    async with stage.life() as sender:
        task = stage.answer(sender, unsure=True)
        await stage.passes(120)
        assert task.done()
        assert stage.said == [WHOLE]
        assert stage.is_clean()


async def test_what_stood_there_before_is_let_be(stage: Stage) -> None:
    """Should Slack once not say which operation a message bears."""
    await stage.passes(100)
    old = await stage.chat.post(DIRECT, Post(message=said("An earlier answer."), thread=stage.thread), "old")
    stage.chat.find(old).pop("metadata")
    stage.chat.find(old)["ts"] = "1767225601.000001"
    async with stage.life() as sender:
        stage.chat.deliver_then_fail("start_stream", LOST)
        await stage.write(sender, "It is a")
        (streamed,) = [one for one in stage.chat.messages(DIRECT) if one["text"] == "It is"]
        stage.chat.find(streamed["ts"])["ts"] = "1767225701.000001"
        sender.turn_over(DIRECT, stage.thread)
        await stage.passes(60)
        assert stage.said == ["An earlier answer."]


async def _one_life(stage: Stage, rng: Random, *, first: bool) -> bool:
    """A life in which things fail; returns whether the answer was taken before it ended."""
    names = [(method, fault) for method in (*METHODS, "post", "history") for fault in FAULTS]
    for method, (name, fault) in rng.sample(names, rng.randrange(5)):
        if name != "refused" or method in ("start_stream", "append_stream", "stop_stream", "replace"):
            fault(stage.chat, method)
    async with stage.life() as sender:
        text = WHOLE if first else ""
        for end in sorted(rng.randrange(len(WHOLE)) for _ in range(rng.randrange(6))):
            sender.written(DIRECT, stage.thread, text[:end], whole=False)
            await stage.passes(rng.choice((0.0, 0.5, 2.0)))
        if not first or rng.random() < 0.8:
            task = stage.answer(sender, unsure=not first)
            await stage.passes(rng.choice((0.0, 1.0, 30.0, 400.0)))
            if rng.random() < 0.5:
                sender.turn_over(DIRECT, stage.thread)
            await stage.passes(rng.choice((0.0, 30.0, 2_000.0)))
            return task.done()
    return False


@pytest.mark.parametrize("seed", range(150))
async def test_through_many_failures_and_deaths_the_answer_stands_once_and_alone(seed: int) -> None:
    rng, stage = Random(seed), Stage()
    lives = 0
    while not await _one_life(stage, rng, first=lives == 0):
        lives += 1
    stage.chat.heal()
    async with stage.life():
        await stage.passes(2_000)
    assert stage.said == [WHOLE]
    assert stage.is_clean()
