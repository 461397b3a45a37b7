"""The plan at the end of a turn, for the agent that continues the conversation.

Downgrading loses it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("plan", sa.Text, nullable=False, server_default=sa.text("''")))


def downgrade() -> None:
    op.drop_column("turns", "plan")
