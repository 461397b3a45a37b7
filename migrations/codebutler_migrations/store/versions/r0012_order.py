"""A separate column for the order of a message among those of its channel."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("messages", sa.Column("order", sa.Text, nullable=False, server_default=sa.text("''")))
    # Until now messages were sorted by their ref.
    op.execute("UPDATE messages SET \"order\" = coalesce(platform_msg_id, '')")


def downgrade() -> None:
    op.drop_column("messages", "order")
