"""The store's transactions: whole or not at all, one by one, on disk when they return."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.domain.errors import StoreError
from codebutler_worker.runtime.turns import STATES, UNFINISHED
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import (
    DeferredRow,
    InboxRow,
    TurnState,
)
from codebutler_worker.store.unit_of_work import Store, UnitOfWork
from tests.clock import ManualClock
from tests.integration.store.some_rows import a_message, a_turn, an_operation, path, store

__all__ = ["path", "store"]


async def test_a_transaction_is_on_disk_when_run_returns(store: Store, path: Path) -> None:
    await store.run(lambda uow: uow.inbox.add(InboxRow("k", 1), known="keep"))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT key, seq FROM inbox").fetchall() == [("k", 1)]


async def test_an_exception_undoes_the_whole_transaction(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        uow.inbox.add(InboxRow("k", 1), known="keep")
        uow.turns.add(a_turn("t1"))
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await store.run(work)
    assert await store.run(lambda uow: uow.turns.get("t1")) is None
    assert await store.run(lambda uow: uow.inbox.add(InboxRow("k", 2), known="keep"))


async def test_transactions_run_one_by_one_in_the_order_they_were_asked_for(store: Store) -> None:
    threads: set[str] = set()

    def work(number: int, uow: UnitOfWork) -> None:
        threads.add(threading.current_thread().name)
        seen = len(uow.outbox.find(state="pending"))
        assert seen == number
        uow.outbox.add(an_operation(f"op{number}"))

    await asyncio.gather(*(store.run(partial(work, n)) for n in range(30)))
    assert len(threads) == 1
    pending = await store.run(lambda uow: uow.outbox.find(state="pending"))
    assert [row.op_id for row in pending] == [f"op{n}" for n in range(30)]


async def test_a_cancelled_caller_leaves_a_whole_transaction_and_a_working_store(store: Store) -> None:
    started, go = threading.Event(), threading.Event()

    def work(uow: UnitOfWork) -> None:
        uow.turns.add(a_turn("t1"))
        started.set()
        assert go.wait(10)
        uow.turns.add(a_turn("t2"))

    task = asyncio.create_task(store.run(work))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    queued = await store.run(lambda uow: uow.turns.find(state="queued"))
    assert [turn.id for turn in queued] == ["t1", "t2"]


async def test_a_full_disk_is_told_in_one_line_without_what_people_wrote(store: Store) -> None:
    store._raw.execute("PRAGMA max_page_count = 1")
    secret = "my secret words " * 5000
    with pytest.raises(StoreError, match="the disk is full: free some space") as caught:
        await store.run(lambda uow: uow.messages.add(replace(a_message("1.0"), content=secret)))
    assert "my secret" not in f"{caught.value} {caught.value.__cause__}"
    assert "\n" not in str(caught.value)
    store._raw.execute("PRAGMA max_page_count = 1000000")
    await store.run(lambda uow: uow.messages.add(a_message("1.0")))


@pytest.mark.parametrize("state", STATES)
async def test_it_knows_whether_a_turn_is_unfinished(store: Store, state: TurnState) -> None:
    assert not await store.anything_open(UNFINISHED)
    await store.run(lambda uow: uow.turns.add(replace(a_turn("t1"), state=state)))
    assert await store.anything_open(UNFINISHED) is (state in UNFINISHED)


async def test_it_knows_whether_an_operation_waits(store: Store) -> None:
    await store.run(lambda uow: uow.outbox.add(an_operation("op1")))
    assert await store.anything_open(UNFINISHED)
    await store.run(lambda uow: uow.settle("op1", "2.0"))
    assert not await store.anything_open(UNFINISHED)


async def test_it_knows_whether_a_deferred_command_is_left(store: Store) -> None:
    command = DeferredRow(id="e1", name="c", conversation="C1:1.0", user_id="U1", created_at="2026")
    await store.run(lambda uow: uow.deferred.add(command))
    assert await store.anything_open(UNFINISHED)
    await store.run(lambda uow: uow.deferred.delete(id="e1"))
    assert not await store.anything_open(UNFINISHED)


async def test_asked_what_is_open_a_store_taken_away_says_so(store: Store, path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreError, match="was removed or replaced"):
        await store.anything_open(UNFINISHED)


async def test_a_closed_store_says_so(path: Path) -> None:
    store = open_store(path, ManualClock())
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.run(lambda uow: uow.outbox.find(state="pending"))


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_taken_away_while_open_commits_nothing(
    store: Store, path: Path, *, replaced: bool
) -> None:
    await store.run(lambda uow: uow.inbox.add(InboxRow("k", 1), known="keep"))
    path.rename(path.with_name("elsewhere.db"))
    if replaced:
        shutil.copy(path.with_name("elsewhere.db"), path)
    with pytest.raises(StoreError, match="was removed or replaced"):
        await store.run(lambda uow: uow.inbox.add(InboxRow("l", 2), known="keep"))


async def test_what_was_stored_is_there_after_reopening(path: Path) -> None:
    async with open_store(path, ManualClock()) as store:
        await store.run(lambda uow: uow.turns.add(a_turn("t1")))
    async with open_store(path, ManualClock()) as store:
        assert await store.run(lambda uow: uow.turns.get("t1")) == a_turn("t1")
