"""What an earlier version named as Slack does is read under its name of today, in the journal and in a store."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from codebutler.domain.message import said
from codebutler.domain.model import MessagePosted, Operation, Post, React, Update, Upload
from codebutler.intake.journal import Journal
from codebutler.protocol.messages import TurnEnded
from codebutler.schedule.scheduler import NOTE
from codebutler.schedule.state import Schedule
from codebutler_migrations import runner
from codebutler_worker.store.opening import downgrade, migrate_store, open_store
from codebutler_worker.store.rows import message_id
from codebutler_worker.store.unit_of_work import UnitOfWork
from tests.clock import ManualClock
from tests.integration.migrations.test_journal_chain import EVENTS, FIRST, OLD_ROOT

GOLDEN = Path(__file__).parents[2] / "golden"
ROOT, CARD = "1700000001.000002", "1700000006.000001"
CONVERSATION = f"C1:{ROOT}"
WAITING: dict[str, Operation | TurnEnded] = {
    "plain": Post(message=said('quotes "thread_ts": stay')),
    "edit": Update(target=CARD, message=said("decided")),
    "later": Update(target="", message=said("edited")),
    "mark": React(target=ROOT, mark="working"),
    "file": Upload(filename="a.txt", content=b"abc", thread=ROOT),
    "ended": TurnEnded(op_id="ended", thread=ROOT, messages=(ROOT,), outcome="done"),
}
TABLES = ("turns", "messages", "threads", "errands", "memory_changes", "memory_lines", "facts", "outbox")


def restored(path: Path, golden: str) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((GOLDEN / golden).read_text())
    return path


def contents(path: Path, *tables: str) -> dict[str, list[Any]]:
    """Rows by column; JSON as what it says, whatever its order."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return {
            table: [
                {name: _read(value) for name, value in dict(row).items()}
                for row in connection.execute(f"SELECT * FROM {table}")
            ]
            for table in tables
        }


def _read(value: object) -> object:
    return msgspec.json.decode(value) if isinstance(value, str) and value.startswith("{") else value


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return restored(tmp_path / "journal.db", "journal/0006.sql")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return restored(tmp_path / "store.db", "store/0013.sql")


async def test_events_and_timers_of_a_journal_go_on(journal: Path) -> None:
    async with Journal.open(journal, ManualClock()) as opened:
        assert [entry.event for entry in await opened.pending()] == EVENTS
        seen = await opened.seen("C1")
        assert (seen[0].ref, seen[0].root) == (FIRST, OLD_ROOT)
        schedule = msgspec.json.decode(await opened.note(NOTE), type=Schedule)
    assert [(timer.text, timer.thread) for timer in schedule.timers] == [
        ('say "thread_ts": x', FIRST),
        ("hi", None),
    ]
    assert schedule.jobs["shop/nightly"].awaited == FIRST


async def test_a_voice_message_that_waits_is_still_one(journal: Path) -> None:
    clip = '"files": [{"id": "F1", "name": "a.mp4", "mimetype": "video/mp4", "subtype": "slack_audio"}]'
    with closing(sqlite3.connect(journal)) as connection, connection:
        changed = connection.execute(
            "UPDATE entries SET event = replace(event, '\"files\": []', ?) WHERE seq = 1", (clip,)
        )
        assert changed.rowcount == 1
    async with Journal.open(journal, ManualClock()) as opened:
        event = (await opened.pending())[0].event
    assert isinstance(event, MessagePosted)
    assert [(file.id, file.is_voice) for file in event.files] == [("F1", True)]


def test_a_journal_goes_back_as_it_was(journal: Path) -> None:
    tables = ("entries", "recent", "notes")
    before = contents(journal, *tables)
    runner.upgrade("journal", journal)
    assert contents(journal, *tables) != before
    runner.downgrade("journal", journal, "0006")
    assert contents(journal, *tables) == before


async def test_what_waits_in_a_store_goes_out(store: Path) -> None:
    def waiting(uow: UnitOfWork) -> dict[str, Operation | TurnEnded]:
        return {
            row.op_id: msgspec.json.decode(row.payload, type=TurnEnded if row.kind == "ended" else Operation)
            for row in uow.outbox.find(state="pending")
        }

    async with open_store(store, ManualClock()) as opened:
        assert await opened.run(waiting) == WAITING


async def test_what_a_store_remembers_is_where_it_was(store: Path) -> None:
    def places(uow: UnitOfWork) -> list[str | None]:
        card = uow.outbox.last_offer("t1", "codebutler.allow")
        session = uow.sessions.get(CONVERSATION, "claude")
        known = (
            uow.turns.get("t1"),
            uow.messages.get(message_id("C1", ROOT)),
            uow.memories.get("m1"),
            uow.facts.get("repo", key="port"),
            session,
            *uow.memory_lines.find(),
        )
        (command,) = uow.deferred.find()
        return [card.ref if card else None, command.thread, *(row.thread if row else None for row in known)]

    async with open_store(store, ManualClock()) as opened:
        assert await opened.run(places) == [CARD, None, *[ROOT] * 6]


def test_marks_that_come_and_go_are_found_again(store: Path) -> None:
    """The operation that set one is named after it, and so is the one that takes it away."""
    with closing(sqlite3.connect(store)) as connection, connection:
        for op_id, name in (("C1:1.1:eyes:0", "eyes"), ("C1:1.1:eyes:0:off", "eyes"), ("op-1", "x")):
            payload = msgspec.json.encode({"kind": "react", "target_ts": "1.1", "name": name}).decode()
            connection.execute(
                "INSERT INTO outbox (op_id, conversation, kind, payload, created_at, state)"
                " VALUES (?, 'C1:1.1', 'react', ?, '2026-01-01', 'posted')",
                (op_id, payload),
            )
    migrate_store(store)
    marks = [
        (row["op_id"], row["payload"].get("mark"), row["payload"].get("name"))
        for row in contents(store, "outbox")["outbox"]
        if row["state"] == "posted" and row["kind"] == "react"
    ]
    assert marks == [
        ("C1:1.1:working:0", "working", None),
        ("C1:1.1:working:0:off", "working", None),
        ("op-1", "failed", None),
    ]


def test_a_store_goes_back_as_it_was(store: Path) -> None:
    before = contents(store, *TABLES)
    migrate_store(store)
    assert contents(store, *TABLES) != before
    downgrade(store, "0013")
    assert contents(store, *TABLES) == before
