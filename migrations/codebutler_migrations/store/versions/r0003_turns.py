"""Threads, turns, the inbox's keys, the outbox and approvals; a message's thread and turn.

Downgrading drops the new tables and columns; the rows and columns of the older revision stay as they are.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

MESSAGE_COLUMNS = ("thread_ts", "turn_id", "agent", "late")


def upgrade() -> None:
    _extend_the_old_tables()
    op.create_table(
        "threads",
        sa.Column("conversation", sa.Text, primary_key=True),
        sa.Column("agent", sa.Text, primary_key=True),
        sa.Column("channel_id", sa.Text, nullable=False),
        sa.Column("thread_ts", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("total_cost_usd", sa.Float, nullable=False),
        sa.Column("updated_at", sa.Text, nullable=False),
    )
    op.create_index("ix_threads_channel_id", "threads", ["channel_id", "updated_at"])
    op.create_table(
        "inbox",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("seq", sa.Integer, nullable=False),
    )
    _create_turns()
    _create_outbox()
    _create_approvals()


def downgrade() -> None:
    for table in ("approvals", "outbox", "turns", "inbox", "threads"):
        op.drop_table(table)
    op.drop_index("ix_messages_turn_id", "messages")
    for column in MESSAGE_COLUMNS:
        op.drop_column("messages", column)
    op.drop_column("sessions", "total_cost_usd")


def _extend_the_old_tables() -> None:
    op.add_column("messages", sa.Column("thread_ts", sa.Text, nullable=False, server_default=sa.text("''")))
    op.add_column("messages", sa.Column("turn_id", sa.Text))
    op.add_column("messages", sa.Column("agent", sa.Text))
    op.add_column("messages", sa.Column("late", sa.Integer, nullable=False, server_default=sa.text("0")))
    op.create_index("ix_messages_turn_id", "messages", ["turn_id"])
    cost = sa.Column("total_cost_usd", sa.Float, nullable=False, server_default=sa.text("0"))
    op.add_column("sessions", cost)


def _create_turns() -> None:
    op.create_table(
        "turns",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("channel_id", sa.Text, nullable=False),
        sa.Column("thread_ts", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("not_before", sa.Text, nullable=False),
        sa.Column("created_at", sa.Text, nullable=False),
        sa.Column("started_at", sa.Text),
        sa.Column("finished_at", sa.Text),
        sa.Column("session_id", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("result", sa.Text),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("input_tokens", sa.Integer, nullable=False),
        sa.Column("output_tokens", sa.Integer, nullable=False),
        sa.Column("cost_usd", sa.Float),
        sa.Column("agent_turns", sa.Integer, nullable=False),
        sa.Column("progress_op_id", sa.Text),
    )
    op.create_index("ix_turns_id", "turns", ["id"], unique=True)
    op.create_index("ix_turns_state", "turns", ["state", "seq"])
    op.create_index("ix_turns_conversation", "turns", ["conversation", "seq"])


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("seq", sa.Integer, primary_key=True),
        sa.Column("op_id", sa.Text, nullable=False),
        _turn_reference(nullable=True),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("target_op_id", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("ts", sa.Text),
        sa.Column("code", sa.Text),
        sa.Column("created_at", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_outbox_op_id", "outbox", ["op_id"], unique=True)
    op.create_index("ix_outbox_state", "outbox", ["state", "seq"])
    op.create_index("ix_outbox_target_op_id", "outbox", ["target_op_id"])


def _create_approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text, primary_key=True),
        _turn_reference(nullable=False),
        sa.Column("conversation", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("action_json", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("requested_at", sa.Text, nullable=False),
        sa.Column("expires_at", sa.Text, nullable=False),
        sa.Column("decided_by", sa.Text),
        sa.Column("decided_at", sa.Text),
        sa.Column("reason", sa.Text),
        sa.Column("message_op_id", sa.Text),
    )
    op.create_index("ix_approvals_state", "approvals", ["state", "requested_at"])
    op.create_index("ix_approvals_turn_id", "approvals", ["turn_id"])


def _turn_reference(*, nullable: bool) -> sa.Column[str]:
    turn = sa.ForeignKey("turns.id", deferrable=True, initially="DEFERRED")
    return sa.Column("turn_id", sa.Text, turn, nullable=nullable)
