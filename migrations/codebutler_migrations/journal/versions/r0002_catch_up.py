"""What catching up needs: the latest messages, where listening began, and gaps that are still open."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("channels", sa.Column("floor_ts", sa.Text, nullable=False, server_default=sa.text("''")))
    op.add_column("channels", sa.Column("gap_ts", sa.Text))
    # Earlier messages were not recorded, so they must not be taken for new ones.
    op.execute("UPDATE channels SET floor_ts = newest_ts")
    op.create_table(
        "recent",
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("ts", sa.Text, primary_key=True),
        sa.Column("root_ts", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("taken", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("recent")
    op.drop_column("channels", "gap_ts")
    op.drop_column("channels", "floor_ts")
