"""Messages of direct conversations, and the channel whose repository each belongs to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "direct",
        sa.Column("home", sa.Text, primary_key=True),
        sa.Column("item", sa.Text, primary_key=True),
        sa.Column("channel", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("direct")
