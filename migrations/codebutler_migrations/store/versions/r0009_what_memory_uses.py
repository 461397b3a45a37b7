"""The use of model requests outside turns, so that it counts towards the repository's budget.

Downgrading loses it: it no longer counts.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "expenses",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("input_tokens", sa.Integer, nullable=False),
        sa.Column("output_tokens", sa.Integer, nullable=False),
        sa.Column("cost_usd", sa.Float),
        sa.Column("at", sa.Text, nullable=False),
    )
    op.create_index("ix_expenses_at", "expenses", ["at"])


def downgrade() -> None:
    op.drop_table("expenses")
