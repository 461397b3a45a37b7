"""What a store need not keep: operations that are over, of turns that are over.

The rest grows slowly and is kept: what people and agents have said, and the keys of what was taken over, for ever.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

# As long as the daily backups reach back. Nothing looks for an older one: only what is pending is looked up in the chat
# or waits for another, and the newest messages of a turn are edited while it has not come to its end.
KEPT = timedelta(days=7)
# Each batch is a transaction, which holds up those behind it for some milliseconds.
BATCH = 500

# SQLite's own words and not SQLAlchemy's, whose first use costs a worker that waits megabytes. The first operations
# are the oldest, so what is young is not read: a store of any length costs the same each day.
_BATCH = "SELECT max(seq), min(created_at) FROM (SELECT seq, created_at FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?)"
_FORGET = """
DELETE FROM outbox AS old
WHERE seq > ? AND seq <= ?
    AND state IN ('posted', 'failed')
    AND created_at < ?
    AND (turn_id IS NULL OR EXISTS (
        SELECT 1 FROM turns WHERE turns.id = old.turn_id AND turns.state IN ('done', 'failed', 'stopped')
    ))
    AND NOT EXISTS (
        SELECT 1 FROM outbox AS waiting WHERE waiting.target_op_id = old.op_id AND waiting.state = 'pending'
    )
"""


def forget_some(connection: sqlite3.Connection, now: datetime, after: int) -> int | None:
    """Drop what may go of a batch of the oldest operations whose ``seq`` is above ``after``, in one transaction.
    Returns the last one's, None where the batch has nothing that is old. Raises sqlite3.Error."""
    before = (now - KEPT).astimezone(UTC).isoformat(timespec="microseconds")
    last: int | None
    last, oldest = connection.execute(_BATCH, (after, BATCH)).fetchone()
    if last is None or oldest >= before:
        return None
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_FORGET, (after, last, before))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return last
