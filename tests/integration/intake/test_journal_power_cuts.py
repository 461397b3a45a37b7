"""Four hundred power cuts: nothing the journal acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import cast

from codebutler.domain.model import Prompt
from codebutler.intake.journal import Journal
from codebutler.platform import sqlitefile
from tests.clock import ManualClock
from tests.events import posted
from tests.powercut import Connection, Recorder, Step, cuts, put

CUTS = 400
BATCHES, AT_ONCE = 40, 5


async def recorded(
    path: Path, synchronous: str, checkpoint_pages: int
) -> tuple[list[Step], dict[str, bytes]]:
    """A journal at work: bursts of events, each acknowledged when ``append`` returns, some settled."""
    async with Journal.open(path, ManualClock()):
        pass  # created as always; durable before the recording begins
    before = {path.name: path.read_bytes()}
    dice = random.Random(3)
    with Recorder() as recorder:
        connection = cast(sqlite3.Connection, Connection(path))
        sqlitefile.become_writer(connection)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
        async with Journal(path, connection, ManualClock()) as journal:

            async def one(number: int) -> None:
                text = "x" * dice.randrange(5000)
                event = posted(channel="C1", ref=f"1700000000.{number:06}", user="U1", text=text)
                entry = await journal.append(event, Prompt(text=text))
                assert entry is not None
                recorder.acknowledge(event.key)
                if number % 3 == 0:
                    await journal.settle(entry.seq)

            for batch in range(BATCHES):
                await asyncio.gather(*(one(batch * AT_ONCE + number) for number in range(AT_ONCE)))
        return recorder.steps, before


async def test_nothing_acknowledged_is_lost_in_400_power_cuts(tmp_path: Path) -> None:
    steps, before = await recorded(tmp_path / "journal.db", "FULL", 40)
    assert {"write", "sync", "ack"} <= {step.kind for step in steps}
    assert any(step.kind == "write" and step.file == "journal.db" for step in steps), "no checkpoint"
    copy, met = tmp_path / "after" / "journal.db", 0
    for files, promised in cuts(steps, before, CUTS, seed=5):
        put(files, copy.parent)
        async with Journal.open(copy, ManualClock()) as journal:
            pending = {entry.event.key for entry in await journal.pending()}
        with closing(sqlite3.connect(copy)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            known = {key for (key,) in connection.execute("SELECT key FROM entries")}
        assert promised <= known
        assert {key for key in promised if int(key.rpartition(".")[2]) % 3} <= pending
        met += len(promised)
    assert met > CUTS * 20


async def test_the_simulated_disk_does_lose_what_is_not_synced(tmp_path: Path) -> None:
    """With the setting that many programs use, it would show."""
    steps, before = await recorded(tmp_path / "journal.db", "NORMAL", 1000)
    copy, lossy = tmp_path / "after" / "journal.db", 0
    for files, promised in cuts(steps, before, 60, seed=5):
        put(files, copy.parent)
        with closing(sqlite3.connect(copy)) as connection:
            known = {key for (key,) in connection.execute("SELECT key FROM entries")}
        lossy += not promised <= known
    assert lossy > 20
