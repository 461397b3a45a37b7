"""Stores times as seconds; events say when they happened, in which order, and whether in a direct conversation.

Until now all of that was read from Slack's IDs wherever it was needed: this migration reads them for the last time.
"""

from __future__ import annotations

import json
from typing import Any

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# For each kind of stored event: the field with its time.
WRITTEN = {"message": "ts", "edit": "edited_ts", "delete": "ts"}


def upgrade() -> None:
    _with_functions()
    _rebuild(
        "channels",
        "channel TEXT NOT NULL PRIMARY KEY, newest_s REAL NOT NULL, floor_s REAL NOT NULL DEFAULT 0, gap_s REAL",
        "channel, seconds_of(newest_ts), seconds_of(floor_ts), seconds_of(gap_ts)",
    )
    _rebuild(
        "recent",
        "channel TEXT NOT NULL, ts TEXT NOT NULL, root_ts TEXT NOT NULL, user TEXT NOT NULL, "
        "taken INTEGER NOT NULL, sent_at REAL NOT NULL, PRIMARY KEY (channel, ts)",
        "channel, ts, root_ts, user, taken, seconds_of(ts)",
    )
    op.create_index("ix_recent_root", "recent", ["channel", "root_ts", "sent_at"])
    op.create_index("ix_recent_sent_at", "recent", ["channel", "sent_at"])
    op.execute("UPDATE entries SET event = with_facts(event) WHERE event IS NOT NULL")


def downgrade() -> None:
    _with_functions()
    _rebuild(
        "channels",
        "channel TEXT NOT NULL PRIMARY KEY, newest_ts TEXT NOT NULL, floor_ts TEXT NOT NULL DEFAULT '', gap_ts TEXT",
        "channel, ts_at(newest_s), ts_at(floor_s), ts_at(gap_s)",
    )
    _rebuild(
        "recent",
        "channel TEXT NOT NULL, ts TEXT NOT NULL, root_ts TEXT NOT NULL, user TEXT NOT NULL, "
        "taken INTEGER NOT NULL, PRIMARY KEY (channel, ts)",
        "channel, ts, root_ts, user, taken",
    )
    op.create_index("ix_recent_root", "recent", ["channel", "root_ts", "ts"])
    # An older version ignores the additional fields.
    op.execute("UPDATE entries SET event = of_slack(event) WHERE event IS NOT NULL")


def _rebuild(table: str, columns: str, values: str) -> None:
    op.execute(f"CREATE TABLE rebuilt ({columns})")
    op.execute(f"INSERT INTO rebuilt SELECT {values} FROM {table}")  # noqa: S608 - constants
    op.execute(f"DROP TABLE {table}")
    op.execute(f"ALTER TABLE rebuilt RENAME TO {table}")


def _with_functions() -> None:
    connection: Any = op.get_bind().connection.driver_connection
    for function in (seconds_of, ts_at, with_facts, of_slack):
        connection.create_function(function.__name__, 1, function)


def seconds_of(ts: str | None) -> float | None:
    """When a message was written. SQLite's own conversion is not exact."""
    if ts is None:
        return None
    try:
        return float(ts)
    except ValueError:
        return 0.0


def ts_at(moment_s: float | None) -> str | None:
    """A moment as Slack writes it."""
    if moment_s is None:
        return None
    return f"{moment_s:017.6f}" if moment_s else ""


def with_facts(event: str) -> str:
    """A waiting event with the fields that it lacks; an unreadable one stays as it is."""
    try:
        said = json.loads(event)
        kind, channel = said["kind"], said["channel"]
        facts = {"is_direct": channel.startswith("D")}
        if kind in WRITTEN:
            ts = said[WRITTEN[kind]]
            facts |= {"sent_at": seconds_of(ts), "order": ts}
        if said.get("origin") == "slack":
            said["origin"] = "chat"
    except (ValueError, KeyError, TypeError, AttributeError):
        return event
    return json.dumps({**facts, **said}, ensure_ascii=False)


def of_slack(event: str) -> str:
    """An event as an older version reads it, which knows Slack only."""
    return event.replace('"origin":"chat"', '"origin":"slack"').replace(
        '"origin": "chat"', '"origin": "slack"'
    )
