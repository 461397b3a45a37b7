"""Four hundred power cuts: nothing the worker's store acknowledged is lost, and no half transaction is kept."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

from codebutler.platform import sqlitefile
from codebutler_worker.store.opening import open_store, writer_lock
from codebutler_worker.store.rows import InboxRow, OutboxRow
from codebutler_worker.store.unit_of_work import Store, UnitOfWork
from tests.clock import ManualClock
from tests.powercut import Connection, Recorder, Step, cuts, put

CUTS = 400
TRANSACTIONS = 150
STAMP = "2026-01-01T00:00:00.000000+00:00"


def take(uow: UnitOfWork, number: int, size: int) -> None:
    """What taking over an event does: remember it, and put something into the outbox, in one transaction."""
    assert uow.inbox.add(InboxRow(f"key-{number}", number), known="keep")
    uow.outbox.add(
        OutboxRow(
            op_id=f"op-{number}",
            turn_id=None,
            conversation="C1:1.1",
            kind="post",
            payload="x" * size,
            target_op_id=None,
            created_at=STAMP,
        )
    )


async def recorded(path: Path) -> tuple[list[Step], dict[str, bytes]]:
    await open_store(path, ManualClock()).close()
    before = {path.name: path.read_bytes()}
    dice = random.Random(3)
    with Recorder() as recorder:
        connection = cast(sqlite3.Connection, Connection(path))
        sqlitefile.become_writer(connection)
        connection.execute("PRAGMA wal_autocheckpoint = 15")
        async with Store(path, connection, ManualClock(), writer_lock(path).acquire()) as store:
            for number in range(TRANSACTIONS):
                size = dice.randrange(6000)
                await store.run(lambda uow, n=number, size=size: take(uow, n, size))  # type: ignore[misc]  # defaults of a lambda
                recorder.acknowledge(number)
                if number % 3 == 0:
                    await store.run(lambda uow, n=number: uow.settle(f"op-{n}", "9.1"))  # type: ignore[misc]  # defaults of a lambda
                    recorder.acknowledge(("posted", number))
        return recorder.steps, before


async def test_nothing_acknowledged_is_lost_in_400_power_cuts(tmp_path: Path) -> None:
    steps, before = await recorded(tmp_path / "store.db")
    assert any(step.kind == "write" and step.file == "store.db" for step in steps), "no checkpoint"
    copy, met = tmp_path / "after" / "store.db", 0
    for files, promised in cuts(steps, before, CUTS, seed=5):
        put(files, copy.parent)
        await open_store(copy, ManualClock()).close()
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            taken = {seq for (seq,) in connection.execute("SELECT seq FROM inbox")}
            said = dict(connection.execute("SELECT op_id, state FROM outbox").fetchall())
        assert {number for number in promised if isinstance(number, int)} <= taken
        assert {f"op-{number}" for number in taken} == said.keys()
        posted = {number for _, number in (one for one in promised if isinstance(one, tuple))}
        assert all(said[f"op-{number}"] == "posted" for number in posted)
        met += len(promised)
    assert met > CUTS * 20
