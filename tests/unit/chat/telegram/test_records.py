"""What is remembered of Telegram's chats outlives us, also after a disk that was full."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from codebutler.chat.telegram.records import OPEN_PAGES, PAGE, KnownMessage, MessageRecords, try_save
from codebutler.domain.errors import StoreError
from tests.notes import Notes


async def test_it_outlives_us() -> None:
    notes = Notes()
    for number in (1, 2, PAGE, PAGE * 3):
        await MessageRecords(notes).update(-1, number, lambda known: replace(known, thread=f"t{number}"))  # noqa: B023
    records = MessageRecords(notes)
    assert [(await records.get(-1, number)).thread for number in (1, 2, PAGE, PAGE * 3)] == [
        "t1",
        "t2",
        f"t{PAGE}",
        f"t{PAGE * 3}",
    ]
    assert await records.get(-2, 1) == KnownMessage()
    assert len(notes.kept) == 3


async def test_what_a_full_disk_did_not_take_is_written_with_the_next_try() -> None:
    notes = Notes()
    records = MessageRecords(notes)
    notes.is_full = True
    with pytest.raises(StoreError):
        await records.update(-1, 1, lambda known: replace(known, thread="t"))
    assert (await records.get(-1, 1)).thread == "t", "known for this life"
    notes.is_full = False
    await records.update(-1, 1, lambda known: replace(known, thread="t"))
    assert (await MessageRecords(notes).get(-1, 1)).thread == "t"


async def test_what_a_full_disk_did_not_take_is_not_forgotten_for_other_pages() -> None:
    notes = Notes()
    records = MessageRecords(notes)
    notes.is_full = True
    await try_save(records.update(-1, 1, lambda known: replace(known, thread="t")))
    notes.is_full = False
    for page in range(1, OPEN_PAGES + 10):
        await records.update(-1, page * PAGE, lambda known: replace(known, thread="other"))
    assert (await records.get(-1, 1)).thread == "t"


async def test_a_page_that_cannot_be_read_is_begun_anew() -> None:
    notes = Notes()
    notes.kept["telegram.messages.-1.0"] = "not json"
    notes.kept["telegram.moved"] = "[]"
    records = MessageRecords(notes)
    await records.open()
    assert await records.get(-1, 1) == KnownMessage()
    assert records.channel(-1) == "tg:-1"


async def test_a_group_that_moved_keeps_its_name() -> None:
    notes = Notes()
    records = MessageRecords(notes)
    assert await records.record_move(-4, -1004)
    assert not await records.record_move(-4, -1004)
    again = MessageRecords(notes)
    await again.open()
    assert (again.channel(-1004), again.chat(-4)) == ("tg:-4", -1004)
    assert again.ref(-1004, 1) > MessageRecords(Notes()).ref(-4, 99_999)
