"""Repositories of what was said and asked: inbox, messages, files, turns. Each method runs inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.dialects.sqlite import Insert, insert

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, add, by, change, every, given, matching, one, values
from codebutler_worker.store.rows import (
    Account,
    AttachmentRow,
    MessageRow,
    Spent,
    TurnRow,
    TurnState,
    message_id,
)
from codebutler_worker.store.spending import spent_between


class InboxTable(Repository):
    """Which events were taken over, for ever."""

    def accept(self, key: str, seq: int) -> bool:
        """True the first time ``key`` (Event.key) is seen; ``seq`` is its place in the parent's journal."""
        return self._connection.execute(_accept(), {"key": key, "seq": seq}).rowcount == 1


class Messages(Repository):
    """People's messages, by channel and ts."""

    def add(self, row: MessageRow) -> None:
        """Keep a message. Raises IntegrityError if its id is there already."""
        add(self._connection, tables.messages, row)

    def get(self, channel_id: str, ts: str) -> MessageRow | None:
        """The message, or None."""
        query = by(tables.messages, "id")
        found = one(self._connection, query, MessageRow, id=message_id(channel_id, ts))
        return None if found is None else _plain(found)

    def of_turn(self, turn_id: str) -> list[MessageRow]:
        """The messages a turn answers, oldest first."""
        found = every(self._connection, _messages_of_turn(), MessageRow, turn_id=turn_id)
        return [_plain(row) for row in found]

    def waiting_of(self, user: str) -> int:
        """How many messages of the user are in turns that wait to begin or to go on."""
        return int(self._connection.execute(_waiting_of(), {"given_user": user}).scalar_one())

    def set_text(self, channel_id: str, ts: str, text: str) -> None:
        """Replace a message's content (it was edited)."""
        self._update(channel_id, ts, content=text)

    def set_agent(self, channel_id: str, ts: str, agent: str | None) -> None:
        """Replace what was typed before the colon."""
        self._update(channel_id, ts, agent=agent)

    def detach(self, channel_id: str, ts: str) -> None:
        """Take a message out of its turn (it was withdrawn)."""
        self._update(channel_id, ts, turn_id=None)

    def attach(self, channel_id: str, ts: str, turn_id: str) -> None:
        """Put a message into a turn, out of the one it was in."""
        self._update(channel_id, ts, turn_id=turn_id)

    def renew(self, channel_id: str, ts: str) -> None:
        """It is to be answered anew: no agent has been told it as it is now."""
        self._update(channel_id, ts, acked=0, late=0)

    def acknowledge(self, read: Iterable[tuple[str, str]]) -> None:
        """Mark messages (their row's id, and what they said) as read by their agent, whatever turn they are in by now.
        What has been edited since is not read."""
        for row_id, content in read:
            change(self._connection, tables.messages, {"acked": 1}, id=row_id, content=content)

    def _update(self, channel_id: str, ts: str, **columns: str | int | None) -> None:
        change(self._connection, tables.messages, columns, id=message_id(channel_id, ts))


class Turns(Repository):
    """The turns, in the order they were created."""

    def add(self, row: TurnRow) -> None:
        """Keep a new turn."""
        add(self._connection, tables.turns, row)

    def get(self, turn_id: str) -> TurnRow | None:
        """The turn, or None."""
        return one(self._connection, by(tables.turns, "id"), TurnRow, id=turn_id)

    def in_states(self, *states: TurnState) -> list[TurnRow]:
        """Every turn in one of these states, oldest first."""
        values = {f"state_{number}": state for number, state in enumerate(states)}
        return every(self._connection, _in_states(*values), TurnRow, **values)

    def interrupted_since(self, moment: str) -> list[TurnRow]:
        """The turns that were interrupted since ``moment`` (ISO 8601), oldest first."""
        return every(self._connection, _interrupted_since(), TurnRow, state="interrupted", moment=moment)

    def latest_of(self, conversation: str) -> TurnRow | None:
        """The conversation's newest turn, whatever its state."""
        return one(self._connection, _latest_of(), TurnRow, conversation=conversation)

    def newest(self, limit: int, conversation: str | None = None) -> list[TurnRow]:
        """The newest turns, of one conversation or of all, whatever their state."""
        if conversation is None:
            return every(self._connection, _newest(), TurnRow, limit=limit)
        query = _newest("conversation")
        return every(self._connection, query, TurnRow, limit=limit, conversation=conversation)

    def spent_between(self, first: str, until: str, account: Account, *, without: str = "") -> list[Spent]:
        """What the turns that began from ``first`` on and before ``until`` (ISO 8601, UTC) have used, but the one
        with the id ``without``: summed up for ``account``."""
        return spent_between(self._connection, first, until, account, without)

    def count(self, state: TurnState) -> int:
        """How many turns are in a state."""
        query = select(func.count()).select_from(tables.turns).where(tables.turns.c.state == state)
        return self._connection.execute(query).scalar_one()

    def update(self, turn_id: str, **fields: str | float | None) -> None:
        """Set fields of TurnRow. Raises KeyError if there is no such turn."""
        if change(self._connection, tables.turns, fields, id=turn_id) == 0:
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


@cache
def _accept() -> Insert:
    return insert(tables.inbox).inline().on_conflict_do_nothing()


@cache
def _messages_of_turn() -> Select[Any]:
    columns = tables.messages.c
    return matching(tables.messages, "turn_id").order_by(columns.order, columns.id)


@cache
def _waiting_of() -> Select[Any]:
    messages, turns = tables.messages.c, tables.turns.c
    of_the_user = (messages.turn_id == turns.id, messages.from_id == given("user"))
    return select(func.count()).where(*of_the_user, turns.state.in_(("queued", "parked")))


@cache
def _in_states(*names: str) -> Select[Any]:
    columns = tables.turns.c
    states = [given(name) for name in names]
    return select(tables.turns).where(columns.state.in_(states)).order_by(columns.seq)


@cache
def _interrupted_since() -> Select[Any]:
    columns = tables.turns.c
    found = select(tables.turns).where(
        columns.state == given("state"), columns.finished_at >= given("moment")
    )
    return found.order_by(columns.seq)


@cache
def _latest_of() -> Select[Any]:
    return _newest_first("conversation").limit(1)


@cache
def _newest(*names: str) -> Select[Any]:
    return _newest_first(*names).limit(given("limit"))


def _newest_first(*names: str) -> Select[Any]:
    return matching(tables.turns, *names).order_by(tables.turns.c.seq.desc())


class Attachments(Repository):
    """A message's files, in the order they were attached."""

    def add(self, row: AttachmentRow) -> None:
        """Keep an attachment; one that is known stays as it is."""
        self._connection.execute(_add_file(), values(row))

    def of_turn(self, turn_id: str) -> list[AttachmentRow]:
        """What came with the messages a turn answers."""
        found = every(self._connection, _files_of_turn(), AttachmentRow, turn_id=turn_id)
        # SQLite has no booleans.
        return [replace(row, is_voice=bool(row.is_voice)) for row in found]

    def put(self, row: AttachmentRow) -> None:
        """Replace what is known of an attachment."""
        where = {"message_id": row.message_id, "file_id": row.file_id}
        change(self._connection, tables.attachments, values(row), **where)


@cache
def _add_file() -> Insert:
    return insert(tables.attachments).on_conflict_do_nothing()


@cache
def _files_of_turn() -> Select[Any]:
    files, messages = tables.attachments, tables.messages
    return (
        select(files)
        .join(messages, messages.c.id == files.c.message_id)
        .where(messages.c.turn_id == given("turn_id"))
        .order_by(messages.c.order, messages.c.id, files.c.position)
    )
