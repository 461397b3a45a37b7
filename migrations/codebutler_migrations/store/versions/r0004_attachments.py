"""Attachments of messages: the files that a turn needs before it starts.

Downgrading loses which files belonged to which message; the files themselves stay.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attachments",
        sa.Column("message_id", sa.Text, primary_key=True),
        sa.Column("file_id", sa.Text, primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("mimetype", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("is_voice", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("transcript", sa.Text, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("attachments")
