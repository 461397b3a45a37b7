"""However long a repository's history is, what a worker asks of its store is found by indexes."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from codebutler.domain.model import Command
from codebutler.platform import sqlitefile
from codebutler.protocol.messages import Overview
from tests.events import posted
from tests.worker_kit import CHANNEL, USER, settings, worker

# Those that grow with every message; a whole one may be read only from its end, and so far as a limit says.
GROWING = ("messages", "turns", "outbox", "inbox", "threads", "approvals")


async def test_a_worker_reads_no_growing_table_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statements: dict[str, str] = {}
    attach = sqlitefile.attach

    def traced(path: Path, *, writable: bool = True) -> sqlite3.Connection:
        connection = attach(path, writable=writable)
        connection.set_trace_callback(lambda each: statements.setdefault(re.sub(r"\d+", "0", each), each))
        return connection

    monkeypatch.setattr(sqlitefile, "attach", traced)
    async with worker(settings(tmp_path)) as parent:
        await parent.stored(parent.says("fix the bug", "100.1"))
        (await parent.run(0)).finish("It is fixed.")
        await parent.until(lambda: parent.reactions("100.1") == ["white_check_mark"], flow=True)
        for number, name in enumerate(("status", "cost", "queue", "recap")):
            event = posted(channel=CHANNEL, ref=f"{200 + number}.1", user=USER, text=f"!{name}")
            await parent.stored(parent.deliver(event, Command(name=name)))
        await parent.stored(parent.says("another", "300.1"))
        await parent.run(1)
        await parent.until(lambda: parent.reactions("300.1") == ["eyes"], flow=True)
    async with worker(settings(tmp_path)) as parent:
        await parent.post_with("The machine stopped")
        await parent.until(lambda: any(told.turns[0].card for told in parent.said(Overview)), flow=True)
    monkeypatch.undo()
    with closing(sqlite3.connect(tmp_path / ".codebutler" / "store.db")) as store:
        whole = {
            each: plan[3]
            for each in statements.values()
            if re.match(r"\s*(SELECT|UPDATE|DELETE)", each) and "LIMIT" not in each
            for plan in store.execute(f"EXPLAIN QUERY PLAN {each}")
            if plan[3].startswith("SCAN") and plan[3].split()[1] in GROWING
        }
        told = [
            each for each in statements.values() if "created_at FROM outbox" in each or "json_each" in each
        ]
        plans = {plan[3] for each in told for plan in store.execute(f"EXPLAIN QUERY PLAN {each}")}
    assert len(statements) > 40
    assert whole == {}
    assert "SEARCH outbox USING INTEGER PRIMARY KEY (rowid>?)" in plans, "what may go"
    assert "SEARCH outbox USING INDEX ix_outbox_turn_id (turn_id=?)" in plans, "where a turn's card is"
