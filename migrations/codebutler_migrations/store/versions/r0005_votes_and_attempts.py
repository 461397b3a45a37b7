"""Several people may have to allow one call, also for a session; and a turn counts how often its agent's service
refused it.

Downgrading loses permissions for a session, and votes that have not decided anything yet.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

COLUMNS = (
    ("approvals", "needed", sa.Integer, "1"),
    ("approvals", "votes", sa.Text, "''"),
    ("approvals", "for_session", sa.Integer, "0"),
    ("turns", "attempts", sa.Integer, "0"),
)


def upgrade() -> None:
    for table, name, kind, default in COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=False, server_default=sa.text(default)))
    op.create_index("ix_approvals_message_op_id", "approvals", ["message_op_id"])


def downgrade() -> None:
    op.drop_index("ix_approvals_message_op_id", "approvals")
    for table, name, _kind, _default in reversed(COLUMNS):
        op.drop_column(table, name)
