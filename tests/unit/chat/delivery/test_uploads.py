"""Files on their way: which one is which is known by its id, through lost answers and deaths of the sender.

Every file here has the same name and the same size, in the same thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from random import Random

import pytest

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.model import Upload
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.notes import Notes

C = "C1"
LOST = ChatOutcomeUnknownError("time-out")
DOWN = ChatUnreachableError("down")


class Bench:
    """``lives`` of a sender, one after the other, over one workspace and one disk."""

    def __init__(self) -> None:
        self.chat = MemoryChat()
        self.clock = ManualClock()
        self.notes = Notes()
        self.root = self.chat.say(C, "U1", "question")
        self._life = AsyncExitStack()

    async def life(self) -> Sender:
        """The sender dies with all it was doing; the next one begins."""
        await self._life.aclose()
        sender = Sender(self.chat, self.clock, Editor(str), rng=Random(1), notes=self.notes)
        return await self._life.enter_async_context(sender)

    async def over(self) -> None:
        await self._life.aclose()

    def file(self, content: bytes) -> Upload:
        return Upload(filename="report.csv", content=content, thread=self.root)

    async def sent(self, sender: Sender, op_id: str, content: bytes, *, unsure: bool = False) -> str:
        task = asyncio.create_task(sender.submit(C, op_id, self.file(content), unsure=unsure))
        await self.passes(60)
        return await task

    async def passes(self, seconds: float) -> None:
        await self.clock.advance(seconds)
        await settle()

    def shown(self) -> list[str]:
        return [message["files"][0]["id"] for message in self.chat.messages(C) if message.get("files")]

    def uploads(self) -> int:
        return self.chat.calls.count("upload")


async def died_at(b: Bench, method: str, op_id: str, content: bytes) -> None:
    """The sender was killed while it waited for ``method``."""
    b.chat.hold(method)
    sender = await b.life()
    task = asyncio.create_task(sender.submit(C, op_id, b.file(content)))
    await b.passes(5)
    assert b.chat.calls[-1] == method
    await b.life()
    await asyncio.gather(task, return_exceptions=True)
    b.chat.release(method)


async def test_a_second_file_of_the_same_name_and_size_is_not_taken_for_the_first() -> None:
    b = Bench()
    sender = await b.life()
    first = await b.sent(sender, "op-1", b"one")
    b.chat.fail_next("share", LOST)
    second = await b.sent(sender, "op-2", b"two")
    assert b.shown() == [first, second]
    assert [done.operation.content for done in b.chat.done if isinstance(done.operation, Upload)] == [
        b"one",
        b"two",
    ]
    await b.over()


async def test_a_share_whose_answer_was_lost_is_found_and_not_done_again() -> None:
    b = Bench()
    sender = await b.life()
    b.chat.deliver_then_fail("share", LOST)
    assert [await b.sent(sender, "op", b"one")] == b.shown()
    assert (b.uploads(), b.chat.calls.count("share")) == (1, 1)
    await b.over()


@pytest.mark.parametrize("trouble", [ChatRateLimitedError(3), DOWN, ChatAuthError(code="invalid_auth"), LOST])
async def test_the_bytes_are_brought_once_however_often_the_share_fails(trouble: ChatError) -> None:
    b = Bench()
    sender = await b.life()
    b.chat.fail_next("share", trouble, times=2)
    task = asyncio.create_task(sender.submit(C, "op", b.file(b"one")))
    await b.passes(600)
    assert [await task] == b.shown()
    assert (b.uploads(), b.chat.calls.count("share")) == (1, 3)
    await b.over()


async def test_a_file_whose_bytes_did_not_arrive_is_brought_again() -> None:
    b = Bench()
    sender = await b.life()
    b.chat.fail_next("upload", DOWN)
    assert [await b.sent(sender, "op", b"one")] == b.shown()
    assert b.uploads() == 2
    await b.over()


@pytest.mark.parametrize("unsure", [True, False])
async def test_killed_after_the_share_the_next_life_finds_that_file(unsure: bool) -> None:
    b = Bench()
    first = await b.sent(await b.life(), "op-1", b"one")
    b.chat.deliver_then_fail("share", LOST)
    b.chat.hold("shared_in")
    await died_at(b, "shared_in", "op-2", b"two")
    assert len(b.shown()) == 2
    second = await b.sent(await b.life(), "op-2", b"two", unsure=unsure)
    assert b.shown() == [first, second]
    await b.over()


async def test_killed_before_the_share_the_next_life_shares_what_was_brought() -> None:
    b = Bench()
    first = await b.sent(await b.life(), "op-1", b"one")
    await died_at(b, "share", "op-2", b"two")
    second = await b.sent(await b.life(), "op-2", b"two", unsure=True)
    assert b.shown() == [first, second]
    assert b.uploads() == 2
    await b.over()


async def test_killed_while_the_bytes_are_brought_the_next_life_brings_them_again() -> None:
    b = Bench()
    first = await b.sent(await b.life(), "op-1", b"one")
    await died_at(b, "upload", "op-2", b"two")
    second = await b.sent(await b.life(), "op-2", b"two", unsure=True)
    assert b.shown() == [first, second]
    await b.over()


async def test_what_slack_has_discarded_is_brought_again() -> None:
    b = Bench()
    await died_at(b, "share", "op", b"one")
    b.chat.discard_uploads()
    assert [await b.sent(await b.life(), "op", b"one", unsure=True)] == b.shown()
    assert b.uploads() == 2
    await b.over()


class SlowToShow(MemoryChat):
    """A share shows in files.info after a while only, as in Slack."""

    async def shared_in(self, file_id: str) -> frozenset[str] | None:
        found = await super().shared_in(file_id)
        return found and frozenset()


async def test_a_share_that_does_not_show_yet_is_not_made_twice() -> None:
    b = Bench()
    b.chat = SlowToShow()
    b.root = b.chat.say(C, "U1", "question")
    b.chat.deliver_then_fail("share", LOST)
    assert [await b.sent(await b.life(), "op", b"one")] == b.shown()
    assert b.uploads() == 1
    await b.over()


async def test_where_slack_refuses_to_tell_the_file_is_shared_all_the_same() -> None:
    b = Bench()
    sender = await b.life()
    b.chat.fail_next("share", LOST)
    b.chat.fail_next("shared_in", ChatError(code="missing_scope"), times=5)
    assert [await b.sent(sender, "op", b"one")] == b.shown()
    await b.over()


@pytest.mark.parametrize("method", ["upload", "share"])
async def test_a_file_that_slack_refuses_is_told_in_its_thread(method: str) -> None:
    b = Bench()
    sender = await b.life()
    b.chat.fail_next(method, ChatError(code="file_type_not_allowed"), times=2)
    ts = await b.sent(sender, "op", b"one")
    line = b.chat.messages(C)[-1]
    assert (line["ts"], line["thread_ts"]) == (ts, b.root)
    assert line["text"] == "📎 `report.csv` was not sent: the chat refused it (file_type_not_allowed)."
    assert await b.sent(await b.life(), "op", b"one", unsure=True) == ts
    assert len(b.chat.texts(C)) == 1
    assert b.shown() == []
    await b.over()


async def test_a_file_that_is_never_there_is_not_tried_for_ever_nor_a_channel_that_takes_nothing() -> None:
    b = Bench()
    sender = await b.life()
    b.chat.fail_next("share", ChatError(code="file_not_found"))
    b.chat.fail_next("post", ChatError(code="is_archived"))
    with pytest.raises(ChatError, match="is_archived"):
        await b.sent(sender, "op", b"one")
    assert b.shown() == []
    assert b.uploads() == 1
    await b.over()


async def test_no_file_is_shared_before_its_id_is_on_disk() -> None:
    b = Bench()
    sender = await b.life()
    b.notes.is_full = True
    task = asyncio.create_task(sender.submit(C, "op", b.file(b"one")))
    await b.passes(60)
    assert b.shown() == []
    b.notes.is_full = False
    await b.passes(60)
    assert [await task] == b.shown()
    await b.over()


FILES = 150


def script(chat: MemoryChat, rng: Random) -> None:
    """Every call fails about every second time, before or after it took effect."""
    for _ in range(FILES):
        for method in ("upload", "share", "shared_in"):
            chat.fail_next(method, rng.choice((DOWN, ChatRateLimitedError(2))), times=rng.randrange(2))
            if rng.random() < 0.5:
                chat.deliver_then_fail(method, DOWN if method != "share" else LOST)
            if method == "share" and rng.random() < 0.5:
                chat.fail_next(method, LOST)


@pytest.mark.parametrize("seed", range(5))
async def test_random_faults_and_deaths_credit_no_file_twice_lose_none_and_double_none(seed: int) -> None:
    rng, b = Random(seed), Bench()
    script(b.chat, rng)
    contents = {f"op-{number}": b"%04d" % number for number in range(FILES)}
    credited: dict[str, str] = {}

    async def send(sender: Sender, op_id: str, *, unsure: bool) -> None:
        credited[op_id] = await sender.submit(C, op_id, b.file(contents[op_id]), unsure=unsure)

    lives = 0
    while len(credited) < FILES:
        assert lives < 200, f"{len(credited)} of {FILES} were sent"
        # The sender is new every third time: else only the worker that asked has died.
        if lives % 3 == 0:
            sender = await b.life()
        left = [op_id for op_id in contents if op_id not in credited]
        tasks = [asyncio.create_task(send(sender, op_id, unsure=lives > 0)) for op_id in left]
        await b.passes(rng.uniform(1, 60))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        lives += 1
    await b.over()
    shown = {done.result: done.operation for done in b.chat.done}
    assert Counter(b.shown()).most_common(1)[0][1] == 1
    assert {op_id: shown[file_id] for op_id, file_id in credited.items()} == {
        op_id: b.file(content) for op_id, content in contents.items()
    }
    assert len(b.shown()) == FILES
    assert lives > 6
