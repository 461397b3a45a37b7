"""A home with a past: one real turn, copied as often as wanted in all that keeps it.

Copied are the rows of journal and store, the messages in the workspace, the audit lines and the turn's own log, each
with names and times of its own. The supervisor must not run.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from bench.scene import Scene
from codebutler.domain.clock import SystemClock
from codebutler.observe.audit import AuditLog
from codebutler.observe.chain import AuditAct
from codebutler.workspace.state import Channel, Message

# History is compared for a week: all of the past is younger.
SPAN_S = 6.5 * 86400
STORE_TABLES = ("messages", "turns", "outbox", "inbox", "threads")
NUMBERED = {"turns": "seq", "outbox": "seq", "entries": "seq"}

Row = dict[str, Any]


class Turn:
    """One turn that was answered in ``channel``, and how a copy of it is called."""

    def __init__(self, channel: Channel, turn_id: str) -> None:
        self.messages = list(channel.messages.values())
        self._named = {turn_id, *(_op_id(message) for message in self.messages)} - {""}
        self._stamps = [message.ts for message in self.messages]

    def copied(self, back_s: float) -> Mapping[str, str]:
        """What stands in the copy that was made ``back_s`` earlier, by what stands in the turn."""
        names = {name: uuid4().hex for name in self._named}
        return names | {ts: f"{float(ts) - back_s:.6f}" for ts in self._stamps}


def live_through(product: Scene, name: str, turns: int) -> None:
    """Have the one turn of the repository ``name`` be the last of ``turns``, spread over the last days."""
    channel = product.server.workspace.channel(product.server.channel_id(name))
    with closing(sqlite3.connect(_store(product, name))) as store:
        turn = Turn(channel, store.execute("SELECT id FROM turns").fetchone()[0])
        backs = [SPAN_S * number / turns for number in range(turns - 1, 0, -1)]
        copies = [(back_s, turn.copied(back_s)) for back_s in backs]
        _copy_rows(store, STORE_TABLES, copies)
    with closing(sqlite3.connect(product.home.journal)) as journal:
        _copy_rows(journal, ("entries", "recent"), copies, f"%{channel.id}%")
    _copy_messages(channel, turn.messages, copies)
    _copy_log(product, name, len(copies))
    with AuditLog(product.home.audit, SystemClock(), str) as audit:
        act = AuditAct(user="U1", channel=channel.id, kind="prompt", text="go", decision="executed")
        audit.keep([act] * len(copies))


def _copy_rows(
    database: sqlite3.Connection,
    tables: Iterable[str],
    copies: list[tuple[float, Mapping[str, str]]],
    only: str = "%",
) -> None:
    database.row_factory = sqlite3.Row
    for table in tables:
        where = "channel LIKE ?" if table in ("entries", "recent") else "? = '%'"
        rows = [dict(row) for row in database.execute(f"SELECT * FROM {table} WHERE {where}", (only,))]
        made = [_copy(table, row, back_s, names) for back_s, names in copies for row in rows]
        if made:
            columns = ", ".join(f'"{column}"' for column in made[0])
            values = ", ".join(f":{column}" for column in made[0])
            database.executemany(f"INSERT INTO {table} ({columns}) VALUES ({values})", made)
    database.commit()


def _copy(table: str, row: Row, back_s: float, names: Mapping[str, str]) -> Row:
    copied = {column: _renamed(value, names) for column, value in row.items()}
    for column, value in row.items():
        if isinstance(value, str) and (column.endswith("_at") or column in ("timestamp", "not_before")):
            copied[column] = (datetime.fromisoformat(value) - timedelta(seconds=back_s)).isoformat()
    if table == "outbox" and copied["op_id"] == row["op_id"]:
        copied["op_id"] = uuid4().hex
    if table == "threads":
        copied["session_id"] = str(uuid4())
    if numbered := NUMBERED.get(table):
        copied[numbered] = None
    return copied


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for old, new in names.items():
            value = value.replace(old, new)
    return value


def _copy_messages(
    channel: Channel, messages: list[Message], copies: list[tuple[float, Mapping[str, str]]]
) -> None:
    """In the order in which they were written, as the workspace keeps them."""
    kept = dict(channel.messages)
    channel.messages.clear()
    channel.timeline.clear()
    for _, names in copies:
        for message in messages:
            text = _renamed(msgspec.json.encode(message).decode(), names)
            copied = msgspec.json.decode(text, type=Message)
            copied.replies = []
            channel.add(copied)
    for message in kept.values():
        message.replies = []
        channel.add(message)


def _copy_log(product: Scene, name: str, count: int) -> None:
    logs = _store(product, name).parent / "logs" / "sessions"
    content = next(logs.iterdir()).read_bytes()
    for _ in range(count):
        (logs / f"{uuid4().hex[:8]}.log").write_bytes(content)


def _store(product: Scene, name: str) -> Path:
    return product.home.root.parent / "repos" / name / ".codebutler" / "store.db"


def _op_id(message: Message) -> str:
    payload = (message.metadata or {}).get("event_payload", {})
    return str(payload.get("op_id", ""))
