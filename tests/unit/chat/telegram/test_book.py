"""What is remembered of Telegram's chats outlives us, also after a disk that was full."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from codebutler.chat.telegram.book import OPEN_PAGES, PAGE, Book, Known, kept
from codebutler.domain.errors import StoreError
from tests.notes import Notes


async def test_it_outlives_us() -> None:
    notes = Notes()
    for number in (1, 2, PAGE, PAGE * 3):
        await Book(notes).keep(-1, number, lambda known: replace(known, thread=f"t{number}"))  # noqa: B023
    book = Book(notes)
    assert [(await book.known(-1, number)).thread for number in (1, 2, PAGE, PAGE * 3)] == [
        "t1",
        "t2",
        f"t{PAGE}",
        f"t{PAGE * 3}",
    ]
    assert await book.known(-2, 1) == Known()
    assert len(notes.kept) == 3


async def test_what_a_full_disk_did_not_take_is_written_with_the_next_try() -> None:
    notes = Notes()
    book = Book(notes)
    notes.is_full = True
    with pytest.raises(StoreError):
        await book.keep(-1, 1, lambda known: replace(known, thread="t"))
    assert (await book.known(-1, 1)).thread == "t", "known for this life"
    notes.is_full = False
    await book.keep(-1, 1, lambda known: replace(known, thread="t"))
    assert (await Book(notes).known(-1, 1)).thread == "t"


async def test_what_a_full_disk_did_not_take_is_not_forgotten_for_other_pages() -> None:
    notes = Notes()
    book = Book(notes)
    notes.is_full = True
    await kept(book.keep(-1, 1, lambda known: replace(known, thread="t")))
    notes.is_full = False
    for page in range(1, OPEN_PAGES + 10):
        await book.keep(-1, page * PAGE, lambda known: replace(known, thread="other"))
    assert (await book.known(-1, 1)).thread == "t"


async def test_a_page_that_cannot_be_read_is_begun_anew() -> None:
    notes = Notes()
    notes.kept["telegram.messages.-1.0"] = "not json"
    notes.kept["telegram.moved"] = "[]"
    book = Book(notes)
    await book.open()
    assert await book.known(-1, 1) == Known()
    assert book.channel(-1) == "tg:-1"


async def test_a_group_that_moved_keeps_its_name() -> None:
    notes = Notes()
    book = Book(notes)
    assert await book.moved(-4, -1004)
    assert not await book.moved(-4, -1004)
    again = Book(notes)
    await again.open()
    assert (again.channel(-1004), again.chat(-4)) == ("tg:-4", -1004)
    assert again.ts(-1004, 1) > Book(None).ts(-4, 99_999)
