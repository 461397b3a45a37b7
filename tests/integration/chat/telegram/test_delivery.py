"""The one delivery over Telegram: nothing is lost, and nothing comes twice without saying so, whatever breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.domain.clock import SystemClock
from codebutler.domain.message import Message, said
from codebutler.domain.model import Post, React, Update, Upload
from tests.notes import Notes
from tests.telegram.server import GROUP, BotServer, Fault
from tests.telegram.state import Chat

CHANNEL = f"tg:{GROUP}"
LONG = Message(markdown="\n\n".join(f"paragraph {n} " + "word " * 150 for n in range(12)), is_foreign=True)
AGAIN = "↻"


class HurriedClock(SystemClock):
    """A minute is a second."""

    def monotonic(self) -> float:
        return time.monotonic() * 60

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 60)


@asynccontextmanager
async def life(server: BotServer, notes: Notes) -> AsyncIterator[Sender]:
    clock = HurriedClock()
    async with (
        TelegramChat(BotApi(server.token, server.url, timeout_s=3), notes, clock=clock) as chat,
        Sender(chat, clock, Editor(str), notes=notes) as sender,
    ):
        yield sender


@pytest.fixture
async def notes() -> Notes:
    return Notes()


async def posted(sender: Sender, message: Message, op_id: str = "op1", *, unsure: bool = False) -> str:
    async with asyncio.timeout(20):
        return await sender.submit(CHANNEL, op_id, Post(message=message), unsure=unsure, lasting=True)


@pytest.mark.parametrize("kind", ["dropped", "status", "rate_limit"])
async def test_what_did_not_arrive_is_said_in_the_end(server: BotServer, notes: Notes, kind: str) -> None:
    server.faults.append(Fault("sendMessage", kind, times=2))  # type: ignore[arg-type]
    async with life(server, notes) as sender:
        ts = await posted(sender, said("the answer"))
    texts = server.telegram.texts(GROUP)
    assert [text for text in texts if "the answer" in text] == texts
    assert len(texts) == 1
    assert int(ts) == server.telegram.own(GROUP)[-1]["message_id"]


async def test_what_may_have_arrived_says_so_when_it_comes_again(server: BotServer, notes: Notes) -> None:
    server.faults.append(Fault("sendMessage", "lost"))
    async with life(server, notes) as sender:
        await posted(sender, said("the answer"))
    first, second = server.telegram.texts(GROUP)
    assert first == "the answer"
    assert second.startswith(AGAIN)
    assert second.endswith("the answer")


@pytest.mark.parametrize("method", ["sendMessage", "editMessageText"])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
async def test_a_long_answer_stands_there_whole_however_often_the_line_breaks(
    server: BotServer, notes: Notes, method: str, after: int
) -> None:
    server.faults.append(Fault(method, "lost", after=after, times=2))
    async with life(server, notes) as sender:
        await posted(sender, LONG)
    last = "".join(server.telegram.texts(GROUP)[-5:])
    assert [n for n in range(12) if f"paragraph {n} " not in last] == []
    doubled = [text for text in server.telegram.texts(GROUP) if text.startswith("paragraph 0 ")]
    assert len(doubled) <= 1


async def test_who_dies_before_the_answer_came_says_it_again_with_a_mark(
    server: BotServer, notes: Notes
) -> None:
    server.faults.append(Fault("sendMessage", "lost"))
    async with life(server, notes) as sender:
        task = asyncio.create_task(posted(sender, said("the answer")))
        async with asyncio.timeout(10):
            while not server.telegram.own(GROUP):  # noqa: ASYNC110 - the server tells nobody
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with life(server, notes) as sender:
        await posted(sender, said("the answer"), unsure=True)
    first, second = server.telegram.texts(GROUP)
    assert first == "the answer"
    assert second.startswith(AGAIN)


async def test_what_an_earlier_life_did_not_hand_over_bears_no_mark(server: BotServer, notes: Notes) -> None:
    async with life(server, notes):
        pass
    async with life(server, notes) as sender:
        await posted(sender, said("the answer"), unsure=True)
    assert server.telegram.texts(GROUP) == ["the answer"]


async def test_edits_and_marks_are_repeated_until_they_are_there(server: BotServer, notes: Notes) -> None:
    question = server.say(GROUP, "fix it")
    async with life(server, notes) as sender:
        ts = await posted(sender, said("working"))
        for method in ("editMessageText", "setMessageReaction"):
            for kind in ("lost", "dropped", "status", "rate_limit"):
                server.faults.append(Fault(method, kind, retry_after=1))
        async with asyncio.timeout(60):
            await sender.submit(CHANNEL, "op2", Update(target=ts, message=said("done")), lasting=True)
            mark = React(target=f"{question:012d}", mark="done", value="outcome")
            await sender.submit(CHANNEL, "op3", mark, lasting=True)
    assert server.telegram.texts(GROUP) == ["done"]
    assert server.telegram.chats[GROUP].reactions[question] == ["👍"]


async def test_a_file_that_may_have_arrived_says_so_when_it_comes_again(
    server: BotServer, notes: Notes
) -> None:
    server.faults.append(Fault("sendDocument", "lost"))
    async with life(server, notes) as sender:
        upload = Upload(filename="a.log", content=b"x", comment="the log")
        async with asyncio.timeout(20):
            await sender.submit(CHANNEL, "op1", upload, lasting=True)
    first, second = server.telegram.texts(GROUP)
    assert first == "the log"
    assert second.startswith(AGAIN)


async def test_what_waits_for_a_closed_chat_is_said_when_it_is_open(server: BotServer, notes: Notes) -> None:
    group = server.telegram.chats[GROUP]
    group.is_closed = "Forbidden: bot was kicked from the supergroup chat"
    async with life(server, notes) as sender:
        task = asyncio.create_task(posted(sender, said("the answer")))
        async with asyncio.timeout(10):
            while not sender.channels.trouble(CHANNEL):  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
        group.is_closed = ""
        await task
    assert server.telegram.texts(GROUP) == ["the answer"]


async def test_a_group_that_moved_loses_nothing(server: BotServer, notes: Notes) -> None:
    server.telegram.chats[-4000] = Chat(-4000, "group", "small")
    server.migrate(-4000, -1004000, tell=False)
    async with life(server, notes) as sender, asyncio.timeout(20):
        await sender.submit("tg:-4000", "op1", Post(message=said("the answer")), lasting=True)
    assert server.telegram.texts(-1004000) == ["the answer"]
