"""Repositories of what was said and asked: inbox, messages, turns. Each method runs inside a transaction."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, func, select, update
from sqlalchemy.dialects.sqlite import insert

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import every, one, values
from codebutler_worker.store.rows import MessageRow, TurnRow, TurnState, message_id


class Inbox:
    """Which events were taken over, for ever."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def accept(self, key: str, seq: int) -> bool:
        """True the first time ``key`` (Event.key) is seen; ``seq`` is its place in the parent's journal."""
        statement = insert(tables.inbox).values(key=key, seq=seq).on_conflict_do_nothing()
        return self._connection.execute(statement).rowcount == 1


class Messages:
    """People's messages, by channel and ts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, row: MessageRow) -> None:
        """Keep a message. Raises IntegrityError if its id is there already."""
        self._connection.execute(tables.messages.insert().values(values(row)))

    def get(self, channel_id: str, ts: str) -> MessageRow | None:
        """The message, or None."""
        query = select(tables.messages).where(tables.messages.c.id == message_id(channel_id, ts))
        found = one(self._connection, query, MessageRow)
        return None if found is None else _plain(found)

    def of_turn(self, turn_id: str) -> list[MessageRow]:
        """The messages a turn answers, oldest first by ts."""
        columns = tables.messages.c
        query = select(tables.messages).where(columns.turn_id == turn_id)
        ordered = query.order_by(columns.platform_msg_id, columns.id)
        return [_plain(row) for row in every(self._connection, ordered, MessageRow)]

    def set_text(self, channel_id: str, ts: str, text: str) -> None:
        """Replace a message's content (it was edited)."""
        self._update(channel_id, ts, content=text)

    def detach(self, channel_id: str, ts: str) -> None:
        """Take a message out of its turn (it was withdrawn)."""
        self._update(channel_id, ts, turn_id=None)

    def attach(self, channel_id: str, ts: str, turn_id: str) -> None:
        """Put a message into a turn, out of the one it was in."""
        self._update(channel_id, ts, turn_id=turn_id)

    def acknowledge(self, turn_id: str) -> None:
        """Mark a turn's messages as answered."""
        statement = update(tables.messages).where(tables.messages.c.turn_id == turn_id).values(acked=1)
        self._connection.execute(statement)

    def _update(self, channel_id: str, ts: str, **columns: str | None) -> None:
        where = tables.messages.c.id == message_id(channel_id, ts)
        self._connection.execute(update(tables.messages).where(where).values(**columns))


class Turns:
    """The turns, in the order they were created."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, row: TurnRow) -> None:
        """Keep a new turn."""
        self._connection.execute(tables.turns.insert().values(values(row)))

    def get(self, turn_id: str) -> TurnRow | None:
        """The turn, or None."""
        return one(self._connection, select(tables.turns).where(tables.turns.c.id == turn_id), TurnRow)

    def in_states(self, *states: TurnState) -> list[TurnRow]:
        """Every turn in one of these states, oldest first."""
        columns = tables.turns.c
        query = select(tables.turns).where(columns.state.in_(states)).order_by(columns.seq)
        return every(self._connection, query, TurnRow)

    def open_of(self, conversation: str) -> TurnRow | None:
        """The conversation's newest turn that has not started: the one a further message may join."""
        columns = tables.turns.c
        query = select(tables.turns).where(columns.conversation == conversation, columns.state == "queued")
        return one(self._connection, query.order_by(columns.seq.desc()), TurnRow)

    def latest_of(self, conversation: str) -> TurnRow | None:
        """The conversation's newest turn, whatever its state."""
        columns = tables.turns.c
        query = select(tables.turns).where(columns.conversation == conversation)
        return one(self._connection, query.order_by(columns.seq.desc()), TurnRow)

    def newest(self, limit: int, conversation: str | None = None) -> list[TurnRow]:
        """The newest turns, of one conversation or of all, whatever their state."""
        columns = tables.turns.c
        query = select(tables.turns).order_by(columns.seq.desc()).limit(limit)
        if conversation is not None:
            query = query.where(columns.conversation == conversation)
        return every(self._connection, query, TurnRow)

    def cost_since(self, moment: str) -> tuple[int, float]:
        """How many turns have ended since ``moment`` (ISO 8601), and what they cost in USD as far as is known."""
        columns = tables.turns.c
        sums = select(func.count(), func.coalesce(func.sum(columns.cost_usd), 0.0))
        count, usd = self._connection.execute(sums.where(columns.finished_at >= moment)).one()
        return int(count), float(usd)

    def count(self, state: TurnState) -> int:
        """How many turns are in a state."""
        query = select(func.count()).select_from(tables.turns).where(tables.turns.c.state == state)
        return self._connection.execute(query).scalar_one()

    def update(self, turn_id: str, **fields: str | float | None) -> None:
        """Set fields of TurnRow. Raises KeyError if there is no such turn."""
        statement = update(tables.turns).where(tables.turns.c.id == turn_id).values(**fields)
        if self._connection.execute(statement).rowcount == 0:
            raise KeyError(turn_id)


def _plain(row: MessageRow) -> MessageRow:
    # SQLite has no booleans, and rows of the WhatsApp era may hold NULL here.
    return replace(
        row,
        is_voice=bool(row.is_voice),
        acked=bool(row.acked),
        late=bool(row.late),
        platform_msg_id=row.platform_msg_id or "",
    )
