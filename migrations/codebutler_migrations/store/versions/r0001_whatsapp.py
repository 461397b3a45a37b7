"""The WhatsApp era's tables, as that program created them.

A file of that era is unversioned and has them already, maybe from a release that lacked a table or one of the optional
columns: existing ones stay, missing ones are added.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

OPTIONAL = {
    "is_voice": "INTEGER DEFAULT 0",
    "acked": "INTEGER DEFAULT 0",
    "wa_msg_id": "TEXT DEFAULT ''",
}


def upgrade() -> None:
    op.execute("""
        CREATE TABLE IF NOT EXISTS messages (
            id        TEXT PRIMARY KEY,
            from_jid  TEXT NOT NULL,
            chat      TEXT NOT NULL,
            content   TEXT NOT NULL,
            timestamp TEXT NOT NULL,
            is_voice  INTEGER DEFAULT 0,
            acked     INTEGER DEFAULT 0,
            wa_msg_id TEXT DEFAULT ''
        )""")
    op.execute("""
        CREATE TABLE IF NOT EXISTS sessions (
            chat_jid   TEXT PRIMARY KEY,
            session_id TEXT NOT NULL,
            updated_at TEXT NOT NULL
        )""")
    present = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("messages")}
    for name, definition in OPTIONAL.items():
        if name not in present:
            op.execute(f"ALTER TABLE messages ADD COLUMN {name} {definition}")


def downgrade() -> None:
    op.drop_table("sessions")
    op.drop_table("messages")
