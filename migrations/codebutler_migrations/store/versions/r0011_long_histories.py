"""Indexes for long histories: a turn's operations and a conversation's approvals are found without reading all
others."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("ix_outbox_turn_id", "outbox", ["turn_id", "seq"])
    op.create_index("ix_approvals_conversation", "approvals", ["conversation"])


def downgrade() -> None:
    op.drop_index("ix_approvals_conversation", "approvals")
    op.drop_index("ix_outbox_turn_id", "outbox")
