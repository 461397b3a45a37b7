"""Recent messages by the first message of their thread, so that the oldest thread is found without reading all of
them."""

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
