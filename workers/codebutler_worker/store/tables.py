"""The tables of ``store.db`` at its newest revision (SQLAlchemy Core). Tests hold the Alembic chain to them.

``messages`` and ``sessions`` are the WhatsApp era's tables with platform-neutral column names.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    text,
)

# Every revision, oldest first. A constant, so that opening a store at head needs no Alembic.
REVISIONS = tuple(f"{number:04}" for number in range(1, 14))
HEAD = REVISIONS[-1]

metadata = MetaData()

messages = Table(
    "messages",
    metadata,
    Column("id", Text, primary_key=True, nullable=True),
    Column("from_id", Text, nullable=False),
    Column("channel_id", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("timestamp", Text, nullable=False),
    Column("is_voice", Integer, server_default=text("0")),
    Column("acked", Integer, server_default=text("0")),
    Column("platform_msg_id", Text, server_default=text("''")),
    Column("thread_ts", Text, nullable=False, server_default=text("''")),
    Column("turn_id", Text),
    Column("agent", Text),
    Column("late", Integer, nullable=False, server_default=text("0")),
    Column("order", Text, nullable=False, server_default=text("''")),
    Index("ix_messages_turn_id", "turn_id"),
)

attachments = Table(
    "attachments",
    metadata,
    Column("message_id", Text, primary_key=True),
    Column("file_id", Text, primary_key=True),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("mimetype", Text, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("is_voice", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("path", Text, nullable=False),
    Column("transcript", Text, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("channel_id", Text, primary_key=True, nullable=True),
    Column("session_id", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
    Column("total_cost_usd", Float, nullable=False, server_default=text("0")),
)

threads = Table(
    "threads",
    metadata,
    Column("conversation", Text, primary_key=True),
    Column("agent", Text, primary_key=True),
    Column("channel_id", Text, nullable=False),
    Column("thread_ts", Text, nullable=False),
    Column("session_id", Text, nullable=False),
    Column("total_cost_usd", Float, nullable=False),
    Column("updated_at", Text, nullable=False),
    Index("ix_threads_channel_id", "channel_id", "updated_at"),
)

inbox = Table(
    "inbox",
    metadata,
    Column("key", Text, primary_key=True),
    Column("seq", Integer, nullable=False),
)

turns = Table(
    "turns",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", Text, nullable=False),
    Column("conversation", Text, nullable=False),
    Column("channel_id", Text, nullable=False),
    Column("thread_ts", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("not_before", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("started_at", Text),
    Column("finished_at", Text),
    Column("session_id", Text),
    Column("reason", Text),
    Column("result", Text),
    Column("user_id", Text, nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cost_usd", Float),
    Column("agent_turns", Integer, nullable=False),
    Column("progress_op_id", Text),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("tree_before", Text),
    Column("tree_after", Text),
    Column("worked_s", Float, nullable=False, server_default=text("0")),
    Column("job", Text, nullable=False, server_default=text("''")),
    Column("plan", Text, nullable=False, server_default=text("''")),
    Index("ix_turns_id", "id", unique=True),
    Index("ix_turns_started_at", "started_at"),
    Index("ix_turns_state", "state", "seq"),
    Index("ix_turns_conversation", "conversation", "seq"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("op_id", Text, nullable=False),
    Column("turn_id", Text, ForeignKey("turns.id", deferrable=True, initially="DEFERRED")),
    Column("conversation", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("target_op_id", Text),
    Column("state", Text, nullable=False),
    Column("ts", Text),
    Column("code", Text),
    Column("created_at", Text, nullable=False),
    Index("ix_outbox_op_id", "op_id", unique=True),
    Index("ix_outbox_state", "state", "seq"),
    Index("ix_outbox_target_op_id", "target_op_id"),
    Index("ix_outbox_turn_id", "turn_id", "seq"),
    sqlite_autoincrement=True,
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", Text, primary_key=True),
    Column("turn_id", Text, ForeignKey("turns.id", deferrable=True, initially="DEFERRED"), nullable=False),
    Column("conversation", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("action_json", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("requested_at", Text, nullable=False),
    Column("expires_at", Text, nullable=False),
    Column("decided_by", Text),
    Column("decided_at", Text),
    Column("reason", Text),
    Column("message_op_id", Text),
    Column("needed", Integer, nullable=False, server_default=text("1")),
    Column("votes", Text, nullable=False, server_default=text("''")),
    Column("for_session", Integer, nullable=False, server_default=text("0")),
    Index("ix_approvals_conversation", "conversation"),
    Index("ix_approvals_message_op_id", "message_op_id"),
    Index("ix_approvals_state", "state", "requested_at"),
    Index("ix_approvals_turn_id", "turn_id"),
)

# Deferred commands.
errands = Table(
    "errands",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("argument", Text, nullable=False),
    Column("conversation", Text, nullable=False),
    Column("thread_ts", Text),
    Column("user_id", Text, nullable=False),
    Column("only_for", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("created_at", Text, nullable=False),
)

memory_changes = Table(
    "memory_changes",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("id", Text, nullable=False),
    Column("conversation", Text, nullable=False),
    Column("channel_id", Text, nullable=False),
    Column("thread_ts", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("changes", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("message_op_id", Text),
    Column("created_at", Text, nullable=False),
    Index("ix_memory_changes_id", "id", unique=True),
)

memory_lines = Table(
    "memory_lines",
    metadata,
    Column("line", Text, primary_key=True),
    Column("channel_id", Text, nullable=False),
    Column("thread_ts", Text, nullable=False),
    Column("added_at", Text, nullable=False),
)

memory_reviews = Table(
    "memory_reviews",
    metadata,
    Column("conversation", Text, primary_key=True),
    Column("up_to", Text, nullable=False),
)

facts = Table(
    "facts",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("channel_id", Text, nullable=False),
    Column("thread_ts", Text, nullable=False),
    Column("updated_at", Text, nullable=False),
)

expenses = Table(
    "expenses",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("purpose", Text, nullable=False),
    Column("conversation", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cost_usd", Float),
    Column("at", Text, nullable=False),
    Index("ix_expenses_at", "at"),
)

# Alembic's own table, so that a new store is born at HEAD without loading Alembic.
version = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
