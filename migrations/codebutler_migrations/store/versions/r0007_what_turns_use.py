"""The data for budgets: how long a turn's agent worked, and which job started it.

Downgrading loses both: today's working time counts as zero.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("turns", sa.Column("worked_s", sa.Float, nullable=False, server_default=sa.text("0")))
    op.add_column("turns", sa.Column("job", sa.Text, nullable=False, server_default=sa.text("''")))
    op.create_index("ix_turns_started_at", "turns", ["started_at"])


def downgrade() -> None:
    op.drop_index("ix_turns_started_at", "turns")
    op.drop_column("turns", "job")
    op.drop_column("turns", "worked_s")
