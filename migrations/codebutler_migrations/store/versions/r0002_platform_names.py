"""Columns that named WhatsApp get names that fit any chat service. No row is touched."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

RENAMES = (
    ("messages", "from_jid", "from_id"),
    ("messages", "chat", "channel_id"),
    ("messages", "wa_msg_id", "platform_msg_id"),
    ("sessions", "chat_jid", "channel_id"),
)


def upgrade() -> None:
    for table, old, new in RENAMES:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")


def downgrade() -> None:
    for table, old, new in RENAMES:
        op.execute(f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}")
