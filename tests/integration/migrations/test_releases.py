"""What earlier releases left is opened and migrated, and none of it is lost."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from codebutler.config.memory import MEMORY_NAME
from codebutler.config.paths import Home, RepoPaths
from codebutler.intake.journal import Journal
from codebutler.intake.repos import RepoTable
from codebutler.observe.chain import verify
from codebutler_worker.store.opening import open_store
from tests.clock import ManualClock
from tests.releases import RELEASES, Release, releases, unpacked


@pytest.fixture(params=releases())
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Release:
    return unpacked(request.param, tmp_path)


def test_there_is_one_and_each_says_what_it_is() -> None:
    assert releases()
    assert (RELEASES / "README.md").exists()


def test_its_configuration_is_taken_as_it_is_and_trusted(left: Release) -> None:
    table = RepoTable.read(Home(left.home), {})
    assert table.unserved == ()
    [served] = table.served
    assert (served.entry.name, served.channel_id, served.trusted) == ("sample", left.channel, True)
    assert served.notes == ()
    assert served.config.agent.default == "rehearsal"
    assert served.config.budget.repo.turns_per_day == 500
    assert "src/app.py" in (RepoPaths(left.repo).root / MEMORY_NAME).read_text()


async def test_its_store_keeps_every_row(left: Release) -> None:
    path = RepoPaths(left.repo).store
    with closing(sqlite3.connect(path)) as before:
        told = dict(before.execute("SELECT id, state FROM turns").fetchall())
        messages = before.execute("SELECT count(*) FROM messages").fetchone()
    assert Counter(told.values())["done"] >= 3
    async with open_store(path, ManualClock()) as store:
        turns = await store.run(lambda uow: uow.turns.find(newest=100))
        session = await store.run(
            lambda uow: uow.sessions.get(f"{left.channel}:{left.answered}", "rehearsal")
        )
        chosen = await store.run(lambda uow: uow.choices.get(f"{left.channel}:{left.answered}"))
    assert {turn.id: turn.state for turn in turns} == told
    assert session is not None
    assert chosen is not None
    assert chosen.agent == "rehearsal"
    with closing(sqlite3.connect(path)) as after:
        assert after.execute("SELECT count(*) FROM messages").fetchone() == messages


async def test_its_journal_keeps_what_it_knows(left: Release) -> None:
    async with Journal.open(Home(left.home).journal, ManualClock()) as journal:
        assert await journal.pending() == []
        assert {left.answered, left.asked} <= {seen.ref for seen in await journal.seen(left.channel)}


def test_its_audit_log_is_whole(left: Release) -> None:
    log = Home(left.home).audit
    assert len(log.read_text().splitlines()) >= 3
    assert verify(log) is None
