"""Renames the columns for messages, and the fields in the outbox: neutral names instead of Slack's ``ts``."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

COLUMNS = {
    "messages": ("thread_ts", "thread"),
    "threads": ("thread_ts", "thread"),
    "turns": ("thread_ts", "thread"),
    "errands": ("thread_ts", "thread"),
    "memory_changes": ("thread_ts", "thread"),
    "memory_lines": ("thread_ts", "thread"),
    "facts": ("thread_ts", "thread"),
    "outbox": ("ts", "ref"),
}
KEYS = {"thread_ts": "thread", "target_ts": "target"}


def upgrade() -> None:
    for table, (old, new) in COLUMNS.items():
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    for old, new in KEYS.items():
        _rename_key(old, new)


def downgrade() -> None:
    for table, (old, new) in COLUMNS.items():
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")
    for old, new in KEYS.items():
        _rename_key(new, old)


def _rename_key(old: str, new: str) -> None:
    # The content of a finished upload is not kept.
    op.execute(
        f"UPDATE outbox SET payload = json_remove(json_set(payload, '$.{new}', json_extract(payload, '$.{old}')), "  # noqa: S608 - constants
        f"'$.{old}') WHERE CASE WHEN json_valid(payload) THEN json_type(payload, '$.{old}') END IS NOT NULL"
    )
