"""What each ledger holds of one message: from the journal to the marks that people see."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.history import Message, Said, reactions_of, whole_text

SHOWN_CHARS = 100


def trace(said: Said, journal: Path, store: Path, thread: Sequence[Message]) -> list[str]:
    """Lines, in the order of a message's way through the house."""
    lines = [f"journal: {row}" for row in _rows(journal, _ENTRY, (f"message:{said.channel}:{said.ts}",))]
    key = f"{said.channel}:{said.ts}"
    messages = _rows(store, "SELECT turn_id, late, content FROM messages WHERE id = ?", (key,))
    lines += [f"inbox: seq {row['seq']}" for row in _rows(store, _INBOX, (f"message:{key}",))]
    lines += [f"message: {row}" for row in messages]
    for message in messages:
        lines += [f"turn: {row}" for row in _rows(store, _TURN, (message["turn_id"],))]
    lines += [f"outbox: {row}" for row in _rows(store, _OUTBOX, (f"%{said.ts}%",))]
    for shown in thread:
        if shown["ts"] >= said.ts:
            text = whole_text(shown)[:SHOWN_CHARS].replace("\n", " ")
            lines.append(f"shown: {shown['ts']} {sorted(reactions_of(shown))} {text}")
    return lines or ["no trace of it anywhere"]


_ENTRY = "SELECT seq, received_at, event IS NULL AS handed_on FROM entries WHERE key = ?"
_INBOX = 'SELECT seq FROM inbox WHERE "key" = ?'
_TURN = "SELECT id, state, reason, attempts, created_at, started_at, finished_at FROM turns WHERE id = ?"
_OUTBOX = (
    "SELECT seq, kind, state, code, target_op_id, created_at, substr(payload, 1, 120) AS payload "
    "FROM outbox WHERE payload LIKE ? ORDER BY seq"
)


def _rows(file: Path, query: str, arguments: tuple[str | None, ...]) -> list[dict[str, Any]]:
    try:
        with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            return [dict(row) for row in connection.execute(query, arguments)]
    except sqlite3.Error as error:
        return [{"cannot read": file.name, "why": str(error)}]


def keep_threads(file: Path, threads: Mapping[tuple[str, str], Sequence[Message]]) -> None:
    """Write what the workspace showed at the end."""
    told = {f"{channel} {root}": messages for (channel, root), messages in threads.items()}
    file.write_text(json.dumps(told, indent=1, default=str))
