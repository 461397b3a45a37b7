"""The memory: the origin of each line, changes that can be undone, how far conversations were reviewed, and facts.

Downgrading loses all of that; ``memory.md`` itself stays as it is.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memory_changes",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("channel_id", sa.Text, nullable=False),
        sa.Column("thread_ts", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("changes", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("message_op_id", sa.Text),
        sa.Column("created_at", sa.Text, nullable=False),
    )
    op.create_index("ix_memory_changes_id", "memory_changes", ["id"], unique=True)
    op.create_table(
        "memory_lines",
        sa.Column("line", sa.Text, primary_key=True),
        sa.Column("channel_id", sa.Text, nullable=False),
        sa.Column("thread_ts", sa.Text, nullable=False),
        sa.Column("added_at", sa.Text, nullable=False),
    )
    op.create_table(
        "memory_reviews",
        sa.Column("conversation", sa.Text, primary_key=True),
        sa.Column("up_to", sa.Text, nullable=False),
    )
    op.create_table(
        "facts",
        sa.Column("scope", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("channel_id", sa.Text, nullable=False),
        sa.Column("thread_ts", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Text, nullable=False),
    )


def downgrade() -> None:
    for table in ("facts", "memory_reviews", "memory_lines", "memory_changes"):
        op.drop_table(table)
