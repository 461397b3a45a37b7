"""What a store forgets, and what it keeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.domain.errors import StoreError
from codebutler.platform.backups import LOOK_EVERY_S, Backups, DailyBackups
from codebutler_worker.runtime.turns import STATES
from codebutler_worker.store.opening import open_store
from codebutler_worker.store.rows import OperationState, OutboxRow, TurnRow, TurnState
from codebutler_worker.store.unit_of_work import BATCH, KEPT, Store, UnitOfWork, iso
from tests.clock import ManualClock

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
OLD = NOW - KEPT - timedelta(seconds=1)
DEADLINE_S = 20.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with open_store(tmp_path / ".codebutler" / "store.db", ManualClock()) as opened:
        yield opened


def an_operation(op_id: str, at: datetime = OLD, state: OperationState = "posted") -> OutboxRow:
    return OutboxRow(
        op_id=op_id, conversation="C1:1.0", kind="post", payload="{}", created_at=iso(at), state=state
    )


def a_turn(state: TurnState) -> TurnRow:
    return TurnRow(
        id="t1",
        conversation="C1:1.0",
        channel_id="C1",
        thread="1.0",
        agent="claude",
        created_at=iso(OLD),
        state=state,
    )


async def left(store: Store, *rows: OutboxRow) -> list[str]:
    """Which of these the store still has after it has forgotten what it may."""

    def put(uow: UnitOfWork) -> None:
        for row in rows:
            uow.outbox.add(row)

    await store.run(put)
    await store.forget_old(NOW)
    return [row.op_id for row in rows if await has(store, row.op_id)]


async def has(store: Store, op_id: str) -> bool:
    return await store.run(lambda uow: uow.outbox.get(op_id)) is not None


async def test_what_is_over_is_forgotten_when_it_is_old(store: Store) -> None:
    young = an_operation("young", NOW - KEPT + timedelta(seconds=1))
    rows = (an_operation("posted"), an_operation("failed", state="failed"), young)
    assert await left(store, *rows) == ["young"]


async def test_what_is_pending_stays_and_so_does_what_it_waits_for(store: Store) -> None:
    waiting = replace(an_operation("update", state="pending"), target_op_id="post")
    assert await left(store, an_operation("post"), waiting, an_operation("other")) == ["post", "update"]


@pytest.mark.parametrize("state", STATES)
async def test_what_belongs_to_a_turn_stays_until_that_is_over(store: Store, state: TurnState) -> None:
    await store.run(lambda uow: uow.turns.add(a_turn(state)))
    stays = state not in ("done", "failed", "stopped")
    assert await left(store, replace(an_operation("op"), turn_id="t1")) == (["op"] if stays else [])


async def test_more_than_a_batch_goes_at_once(store: Store) -> None:
    assert await left(store, *(an_operation(f"op{number}") for number in range(2 * BATCH + 1))) == []


async def test_a_store_taken_away_says_so(store: Store, tmp_path: Path) -> None:
    (tmp_path / ".codebutler" / "store.db").rename(tmp_path / "elsewhere.db")
    with pytest.raises(StoreError, match="was removed or replaced"):
        await store.forget_old(NOW)


async def test_it_is_done_once_a_day_after_the_backup(store: Store, tmp_path: Path) -> None:
    clock, troubles = ManualClock(NOW), list[str]()
    backups = Backups(tmp_path / "backups", tmp_path / ".codebutler" / "store.db")
    await store.run(lambda uow: uow.outbox.add(an_operation("first")))
    async with DailyBackups(backups, clock, troubles.append, store.forget_old):
        await until_gone(store, "first", clock, 0)
        async with open_store(backups.file(NOW.date()), clock) as copy:
            assert await has(copy, "first")

        await store.run(lambda uow: uow.outbox.add(an_operation("second")))
        await clock.advance(2 * LOOK_EVERY_S)
        assert await has(store, "second")
        await until_gone(store, "second", clock, LOOK_EVERY_S)
    assert clock.now() >= NOW.replace(hour=0) + timedelta(days=1)
    assert troubles == []


async def until_gone(store: Store, op_id: str, clock: ManualClock, step_s: float) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await has(store, op_id):
            await clock.advance(step_s)
