"""The sessions agents resume, one per conversation and agent.

Two tables lie behind this one repository. ``sessions`` is the WhatsApp era's: one Claude session per channel.
It stays the storage of channel-wide conversations with ``claude``, so that such a conversation goes on across
the migration; and it follows the newest Claude session of the channel's threads, so that switching
``agent.scope`` to ``channel`` continues where people last were. Everything else is in ``threads``.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, select
from sqlalchemy.dialects.sqlite import insert

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import every, one, values
from codebutler_worker.store.rows import SessionRow

CHANNEL_AGENT = "claude"


class Sessions:
    """Get, put and forget sessions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, conversation: str, agent: str) -> SessionRow | None:
        """The session this agent has in this conversation, or None."""
        if agent == CHANNEL_AGENT and _is_channel(conversation):
            return self._of_channel(conversation)
        columns = tables.threads.c
        query = select(tables.threads).where(columns.conversation == conversation, columns.agent == agent)
        return one(self._connection, query, SessionRow)

    def put(self, row: SessionRow) -> None:
        """Keep the session, in place of an earlier one."""
        if row.agent == CHANNEL_AGENT:
            self._put_channel(row)
        if row.agent == CHANNEL_AGENT and _is_channel(row.conversation):
            return
        columns = values(row)
        statement = insert(tables.threads).values(columns)
        self._connection.execute(
            statement.on_conflict_do_update(index_elements=["conversation", "agent"], set_=columns)
        )

    def forget(self, conversation: str) -> None:
        """Drop every agent's session of the conversation: its next message starts afresh."""
        columns = tables.sessions.c
        channel = _channel_of(conversation)
        mine = self.get(conversation, CHANNEL_AGENT)
        if mine is not None:
            self._connection.execute(
                delete(tables.sessions).where(
                    columns.channel_id == channel, columns.session_id == mine.session_id
                )
            )
        self._connection.execute(delete(tables.threads).where(tables.threads.c.conversation == conversation))

    def recent(self, limit: int = 20) -> list[SessionRow]:
        """The threads' sessions, the last used first."""
        query = select(tables.threads).order_by(tables.threads.c.updated_at.desc()).limit(limit)
        return every(self._connection, query, SessionRow)

    def _of_channel(self, conversation: str) -> SessionRow | None:
        channel = _channel_of(conversation)
        query = select(tables.sessions).where(tables.sessions.c.channel_id == channel)
        found = self._connection.execute(query).first()
        if found is None:
            return None
        return SessionRow(
            conversation=conversation,
            channel_id=channel,
            agent=CHANNEL_AGENT,
            session_id=found.session_id,
            updated_at=found.updated_at,
            total_cost_usd=found.total_cost_usd,
        )

    def _put_channel(self, row: SessionRow) -> None:
        columns = {
            "session_id": row.session_id,
            "updated_at": row.updated_at,
            "total_cost_usd": row.total_cost_usd,
        }
        statement = insert(tables.sessions).values(channel_id=row.channel_id, **columns)
        self._connection.execute(statement.on_conflict_do_update(index_elements=["channel_id"], set_=columns))


def _is_channel(conversation: str) -> bool:
    return conversation.endswith(":")


def _channel_of(conversation: str) -> str:
    return conversation.partition(":")[0]
