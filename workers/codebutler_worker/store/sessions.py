"""The sessions agents resume, one per conversation and agent.

Two tables lie behind this one repository. ``sessions`` is the WhatsApp era's: one Claude session per channel.
It stays the storage of channel-wide conversations with ``claude``, so that such a conversation goes on across
the migration; and it follows the newest Claude session of the channel's threads, so that switching
``agent.scope`` to ``channel`` continues where people last were. Everything else is in ``threads``.
"""

from __future__ import annotations

from functools import cache

from sqlalchemy import Table
from sqlalchemy.dialects.sqlite import Insert, insert

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, by, one, remove, values
from codebutler_worker.store.rows import SessionRow

CHANNEL_AGENT = "claude"


class Sessions(Repository):
    """Get, put and forget sessions."""

    def get(self, conversation: str, agent: str) -> SessionRow | None:
        """The session this agent has in this conversation, or None."""
        if agent == CHANNEL_AGENT and _is_channel(conversation):
            return self._of_channel(conversation)
        query = by(tables.threads, "conversation", "agent")
        return one(self._connection, query, SessionRow, conversation=conversation, agent=agent)

    def put(self, row: SessionRow) -> None:
        """Keep the session, in place of an earlier one."""
        if row.agent == CHANNEL_AGENT:
            self._put_channel(row)
        if row.agent == CHANNEL_AGENT and _is_channel(row.conversation):
            return
        self._connection.execute(_put(tables.threads), values(row))

    def forget(self, conversation: str) -> None:
        """Drop every agent's session of the conversation: its next message starts afresh."""
        channel = _channel_of(conversation)
        mine = self.get(conversation, CHANNEL_AGENT)
        if mine is not None:
            remove(self._connection, tables.sessions, channel_id=channel, session_id=mine.session_id)
        remove(self._connection, tables.threads, conversation=conversation)

    def _of_channel(self, conversation: str) -> SessionRow | None:
        channel = _channel_of(conversation)
        query = by(tables.sessions, "channel_id")
        found = self._connection.execute(query, {"given_channel_id": channel}).first()
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
            "channel_id": row.channel_id,
            "session_id": row.session_id,
            "updated_at": row.updated_at,
            "total_cost_usd": row.total_cost_usd,
        }
        self._connection.execute(_put(tables.sessions), columns)


def _is_channel(conversation: str) -> bool:
    return conversation.endswith(":")


def _channel_of(conversation: str) -> str:
    return conversation.partition(":")[0]


@cache
def _put(table: Table) -> Insert:
    """Insert, or replace all but the key."""
    statement = insert(table)
    new = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)
