"""Pull requests that were opened from a thread, which of their checks and comments are known, and news of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    texts = ("conversation", "thread", "user_id", "remote", "url", "state", "checks", "told", "seen")
    op.create_table(
        "pulls",
        sa.Column("id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in texts),
        *(sa.Column(name, sa.Integer, nullable=False) for name in ("number", "looks", "failures", "news")),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("next_at", "until")),
    )
    op.create_index("ix_pulls_state", "pulls", ["state", "next_at"])
    op.create_table(
        "pull_news",
        sa.Column("id", sa.Text, primary_key=True),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("pull_id", "task", "created_at")),
    )


def downgrade() -> None:
    op.drop_table("pull_news")
    op.drop_table("pulls")
