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
REVISIONS = tuple(f"{number:04}" for number in range(1, 20))
HEAD = REVISIONS[-1]

metadata = MetaData()


def _texts(*names: str) -> list[Column[str]]:
    """Columns of text that are never NULL."""
    return [Column(name, Text, nullable=False) for name in names]


messages = Table(
    "messages",
    metadata,
    Column("id", Text, primary_key=True, nullable=True),
    *_texts("from_id", "channel_id", "content", "timestamp"),
    Column("is_voice", Integer, server_default=text("0")),
    Column("acked", Integer, server_default=text("0")),
    Column("platform_msg_id", Text, server_default=text("''")),
    Column("thread", Text, nullable=False, server_default=text("''")),
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
    *_texts("name", "mimetype"),
    Column("size_bytes", Integer, nullable=False),
    Column("is_voice", Integer, nullable=False),
    *_texts("state", "path", "transcript"),
)

sessions = Table(
    "sessions",
    metadata,
    Column("channel_id", Text, primary_key=True, nullable=True),
    *_texts("session_id", "updated_at"),
    Column("total_cost_usd", Float, nullable=False, server_default=text("0")),
)

threads = Table(
    "threads",
    metadata,
    Column("conversation", Text, primary_key=True),
    Column("agent", Text, primary_key=True),
    *_texts("channel_id", "thread", "session_id"),
    Column("total_cost_usd", Float, nullable=False),
    Column("updated_at", Text, nullable=False),
    Index("ix_threads_channel_id", "channel_id", "updated_at"),
)

choices = Table(
    "choices",
    metadata,
    Column("conversation", Text, primary_key=True),
    *_texts("agent", "model", "model_of", "mode", "updated_at"),
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
    *_texts("id", "conversation", "channel_id", "thread", "agent", "state", "not_before", "created_at"),
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
    Column("model", Text, nullable=False, server_default=text("''")),
    Column("commits", Text, nullable=False, server_default=text("''")),
    Column("checks", Text, nullable=False, server_default=text("''")),
    Column("files", Integer),
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
    *_texts("conversation", "kind", "payload"),
    Column("target_op_id", Text),
    Column("state", Text, nullable=False),
    Column("ref", Text),
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
    *_texts("conversation", "tool", "action_json", "digest", "state", "requested_at", "expires_at"),
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
    *_texts("name", "argument", "conversation"),
    Column("thread", Text),
    *_texts("user_id", "only_for"),
    Column("attempts", Integer, nullable=False),
    Column("created_at", Text, nullable=False),
)

memory_changes = Table(
    "memory_changes",
    metadata,
    Column("seq", Integer, primary_key=True),
    *_texts("id", "conversation", "channel_id", "thread", "user_id", "changes", "state"),
    Column("message_op_id", Text),
    Column("created_at", Text, nullable=False),
    Index("ix_memory_changes_id", "id", unique=True),
)

memory_lines = Table(
    "memory_lines",
    metadata,
    Column("line", Text, primary_key=True),
    *_texts("channel_id", "thread", "added_at"),
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
    *_texts("value", "channel_id", "thread", "updated_at"),
)

expenses = Table(
    "expenses",
    metadata,
    Column("seq", Integer, primary_key=True),
    *_texts("purpose", "conversation", "model"),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cost_usd", Float),
    Column("at", Text, nullable=False),
    Index("ix_expenses_at", "at"),
)

pulls = Table(
    "pulls",
    metadata,
    Column("id", Text, primary_key=True),
    *_texts("conversation", "thread", "user_id", "remote", "url", "state", "checks", "told", "seen"),
    *(Column(name, Integer, nullable=False) for name in ("number", "looks", "failures", "news")),
    *_texts("next_at", "until"),
    Index("ix_pulls_state", "state", "next_at"),
)

pull_news = Table(
    "pull_news",
    metadata,
    Column("id", Text, primary_key=True),
    *_texts("pull_id", "task", "created_at"),
)

# One row for each finished turn, under its ``seq``. SQLite makes tables of its own beside it.
SEARCH = (
    "CREATE VIRTUAL TABLE search USING fts5(question, answer, tokenize = 'unicode61 remove_diacritics 2')"
)

# Alembic's own table, so that a new store is born at HEAD without loading Alembic.
version = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
