"""A turn's model and results: files, commits, and the outcome of its checks.

Downgrading loses them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("model", "commits", "checks"):
        op.add_column("turns", sa.Column(name, sa.Text, nullable=False, server_default=sa.text("''")))
    op.add_column("turns", sa.Column("files", sa.Integer))


def downgrade() -> None:
    for name in ("files", "checks", "commits", "model"):
        op.drop_column("turns", name)
