"""What must be true of a conversation's whole record once all is quiet, whatever died in between.

The record is what people see (messages, marks) and what the worker's store says about it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARKS = {"done": "white_check_mark", "failed": "x", "stopped": "octagonal_sign"}
FOOTER = "_tokens:"
QUESTIONS = ("The machine stopped", "Resumes automatically")
# A button that is pressed again after a death: whoever did is told, and nobody else sees it.
# An edit of what was not needed any more has nothing to edit.
FAILED = """SELECT code FROM outbox WHERE state = 'failed'
AND coalesce(target_op_id, '') NOT IN (SELECT op_id FROM outbox WHERE ref = '')"""
# Those of an empty ts were not needed any more when they could be sent.
FOR_ALL = "kind = 'post' AND coalesce(json_extract(payload, '$.only_for'), '') = '' AND ref != ''"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Shown:
    """A message of ours as people see it; ``text`` includes its blocks."""

    ts: str
    op_id: str
    text: str


def rows(path: Path, query: str, *arguments: str) -> list[Row]:
    """Read from a ledger that other processes write."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)
    try:
        return connection.execute(query, arguments).fetchall()
    finally:
        connection.close()


def unsettled(store: Path) -> list[str]:
    """What the worker's store holds as under way."""
    pending = rows(store, "SELECT op_id FROM outbox WHERE state = 'pending'")
    turns = rows(store, "SELECT id FROM turns WHERE state IN ('queued', 'running', 'waiting', 'parked')")
    return [str(row[0]) for row in (*pending, *turns)]


def check(store: Path, ours: Iterable[Shown], said: Iterable[str], marks: Callable[[str], set[str]]) -> None:
    """Each message of ``said`` has exactly one visible outcome, in order; nothing was said twice or lost."""
    assert unsettled(store) == []
    assert rows(store, FAILED) == []
    shown = {message.ts: message for message in ours}
    counted = Counter(message.op_id for message in shown.values())
    assert [op for op, times in counted.items() if times > 1] == [], "said twice"
    posts = rows(store, f"SELECT op_id, ref, turn_id FROM outbox WHERE {FOR_ALL} ORDER BY seq")
    assert {(op, ts) for op, ts, _ in posts} == {(m.op_id, m.ts) for m in shown.values()}
    _check_turns(store, posts, shown)
    for ts in said:
        query = "SELECT t.state FROM messages m JOIN turns t ON t.id = m.turn_id WHERE m.platform_msg_id = ?"
        states = rows(store, query, ts)
        assert len(states) == 1, f"message {ts} belongs to {len(states)} turns"
        assert marks(ts) == {MARKS[states[0][0]]}, (ts, states)


def _check_turns(store: Path, posts: list[Row], shown: Mapping[str, Shown]) -> None:
    first_seen: dict[str, list[str]] = {}
    turns = rows(store, "SELECT id, conversation, state, reason, progress_op_id FROM turns ORDER BY seq")
    # Who waited, worked and was parked has shown that in another message than the card it has now.
    passing = "SELECT op_id FROM outbox WHERE kind = 'post' AND json_extract(payload, '$.value') = 'progress'"
    passed = {op for (op,) in rows(store, passing)}
    for turn_id, conversation, state, reason, progress in turns:
        own = [(op, shown[ts]) for op, ts, owner in posts if owner == turn_id]
        spoken = [message for op, message in own if op != progress and op not in passed]
        answers = [message for message in spoken if FOOTER in message.text]
        # The card of a parked turn is the message that is kept up to date.
        questions = [message for _, message in own if any(words in message.text for words in QUESTIONS)]
        crashed = state == "interrupted" or reason == "dropped"
        assert len(answers) == (state == "done"), (turn_id, state, spoken)
        assert len(questions) == (crashed or reason == "continued"), (turn_id, state, reason, spoken)
        assert state in MARKS or reason == "continued", (turn_id, state, reason)
        first_seen.setdefault(conversation, []).extend(message.ts for message in spoken[:1])
    for conversation, seen in first_seen.items():
        assert seen == sorted(seen), f"{conversation} was answered out of order"
