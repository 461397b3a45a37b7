"""What was seen lately, by the first message of its thread: the oldest thread is found without reading all."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_recent_root", "recent", ["channel", "root_ts", "ts"])


def downgrade() -> None:
    op.drop_index("ix_recent_root", "recent")
