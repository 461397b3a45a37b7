"""Snapshots of the working tree before and after a turn, so that it can be undone; and deferred commands.

Downgrading loses both: earlier turns can no longer be undone, and commands in progress stay unanswered.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("tree_before", sa.Text))
    op.add_column("turns", sa.Column("tree_after", sa.Text))
    op.create_table(
        "errands",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("argument", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("thread_ts", sa.Text),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("only_for", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("errands")
    op.drop_column("turns", "tree_after")
    op.drop_column("turns", "tree_before")
