"""The plan with which a turn ended, for whoever goes on with the conversation.

Going back forgets it.
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
