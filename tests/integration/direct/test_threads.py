"""What belongs to a direct conversation goes there, also after a restart of the parent."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from codebutler.chat.delivery.outgoing import Editor
from codebutler.chat.delivery.sender import Sender
from codebutler.domain.errors import StoreError
from codebutler.domain.message import said
from codebutler.domain.model import Post, React, Update
from codebutler.intake.direct import DirectThreads
from codebutler.intake.journal import Journal
from codebutler.intake.journal_file import KEPT_DIRECT
from tests.clock import ManualClock, settle
from tests.memory_chat import MemoryChat
from tests.notes import Notes

HOME, DIRECT = "C1", "D1"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[DirectThreads]:
    async with Journal.open(path, ManualClock()) as journal:
        book = DirectThreads(journal)
        await book.load()
        yield book


async def test_a_workers_words_go_to_the_conversation_they_are_about(tmp_path: Path) -> None:
    chat, clock = MemoryChat(), ManualClock()
    asked = chat.say(DIRECT, "U1", "what is this?")
    other = chat.say(HOME, "U1", "something else")
    async with (
        opened(tmp_path / "journal.db") as book,
        Sender(chat, clock, Editor(str), Notes(), direct=book) as sender,
    ):
        await book.place(HOME, DIRECT, (asked,))
        answer = await sender.submit(HOME, "op-1", Post(message=said("working"), thread=asked))
        await sender.submit(HOME, "op-2", Update(target=answer, message=said("a toolbox")))
        await sender.submit(HOME, "op-3", React(target=asked, mark="working"))
        await sender.submit(HOME, "op-4", Post(message=said("and here"), thread=other))
        await settle()
        told = await sender.history(HOME, thread=asked)
        assert [message.text for message in told.messages] == ["what is this?", "a toolbox"]
        assert chat.marks(DIRECT, asked) == {"working"}
        assert chat.texts(HOME) == ["and here"]
    async with (
        opened(tmp_path / "journal.db") as book,
        Sender(chat, clock, Editor(str), Notes(), direct=book) as sender,
    ):
        await sender.submit(HOME, "op-5", Update(target=answer, message=said("a box of tools")))
        assert "a box of tools" in chat.texts(DIRECT)


async def test_a_conversation_is_found_by_any_of_its_messages(tmp_path: Path) -> None:
    async with opened(tmp_path / "journal.db") as book:
        await book.place(HOME, DIRECT, ("1.000001", "F1"))
        assert book.home(DIRECT, "9.000009", "1.000001") == HOME
        assert book.home(DIRECT, "9.000009") == ""
        assert book.home("D2", "1.000001") == ""
        assert book.where(HOME, "F1") == DIRECT
        assert book.where("C2", "F1") == "C2"
        assert book.channels == (DIRECT,)


async def test_only_the_latest_are_known_and_the_rest_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    items = [f"{number:010d}.000001" for number in range(KEPT_DIRECT + 10)]
    async with Journal.open(path, ManualClock()) as journal:
        await journal.place_direct(HOME, DIRECT, items)
        assert [item for _home, item, _channel in await journal.placed_direct()] == items[10:]
        await journal.forget_old(ManualClock().now())
        assert [item for _home, item, _channel in await journal.placed_direct()] == items[10:]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT min(item), count(*) FROM direct").fetchall() == [
            (items[10], KEPT_DIRECT)
        ]


async def test_no_more_is_known_than_is_kept(tmp_path: Path) -> None:
    async with opened(tmp_path / "journal.db") as book:
        await book.place(HOME, DIRECT, ["F1", "F2"])
        await book.place(HOME, DIRECT, [f"{number:010d}.000001" for number in range(KEPT_DIRECT - 1)])
        assert (book.where(HOME, "F1"), book.home(DIRECT, "F1")) == (HOME, "")
        assert (book.where(HOME, "F2"), book.home(DIRECT, "F2")) == (DIRECT, HOME)


async def test_an_answer_that_was_posted_stays_posted_when_the_disk_takes_nothing(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "journal.db", ManualClock())
    await journal.close()
    with pytest.raises(StoreError):
        await journal.place_direct(HOME, DIRECT, ["F1"])
    chat, book = MemoryChat(), DirectThreads(journal)
    asked = chat.say(DIRECT, "U1", "hello")
    await book.posted(HOME, DIRECT, asked)
    async with Sender(chat, ManualClock(), Editor(str), Notes(), direct=book) as sender:
        ts = await sender.submit(HOME, "op-1", Post(message=said("hi"), thread=asked))
    assert book.where(HOME, ts) == DIRECT
