"""The settings of a thread: its agent, that agent's model, and its mode.

Downgrading loses them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "choices",
        sa.Column("conversation", sa.Text, primary_key=True),
        *(
            sa.Column(name, sa.Text, nullable=False)
            for name in ("agent", "model", "model_of", "mode", "updated_at")
        ),
    )


def downgrade() -> None:
    op.drop_table("choices")
