"""What a store need not keep: operations that are over, of turns that are over.

The rest grows slowly and is kept: what people and agents have said, and the keys of what was taken over, for ever.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta

# As long as the daily backups reach back. Nothing looks for an older one: only what is pending is looked up in Slack
# or waits for another, and the newest messages of a turn are edited while it has not come to its end.
KEPT = timedelta(days=7)
# Each batch is a transaction, which holds up those behind it for some milliseconds.
BATCH = 500

# SQLite's own words and not SQLAlchemy's, whose first use costs a worker that waits megabytes.
_FORGET = """
DELETE FROM outbox WHERE seq IN (
    SELECT seq FROM outbox AS old
    WHERE state IN ('posted', 'failed')
        AND created_at < ?
        AND (turn_id IS NULL OR turn_id IN (SELECT id FROM turns WHERE state IN ('done', 'failed', 'stopped')))
        AND NOT EXISTS (
            SELECT 1 FROM outbox AS waiting WHERE waiting.target_op_id = old.op_id AND waiting.state = 'pending'
        )
    ORDER BY seq LIMIT ?
)
"""


def forget_some(connection: sqlite3.Connection, now: datetime) -> bool:
    """Drop a batch of the oldest in one transaction; False when there was nothing more. Raises sqlite3.Error."""
    before = (now - KEPT).astimezone(UTC).isoformat(timespec="microseconds")
    connection.execute("BEGIN IMMEDIATE")
    try:
        dropped = connection.execute(_FORGET, (before, BATCH)).rowcount
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return dropped == BATCH
