"""The parent's journal: entries, and the newest message of each channel."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "entries",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("received_at", sa.Text, nullable=False),
        sa.Column("event", sa.Text),
        sa.Column("request", sa.Text),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_entries_pending", "entries", ["channel", "seq"], sqlite_where=sa.text("event IS NOT NULL")
    )
    op.create_table(
        "channels",
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("newest_ts", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("channels")
    op.drop_table("entries")
