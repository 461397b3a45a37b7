"""What was said, asked and used: inbox, messages, files, turns, expenses. Each method runs inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.dialects.sqlite import insert

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, column_values, given, matching
from codebutler_worker.store.rows import (
    AttachmentRow,
    BudgetAccount,
    ExpenseRow,
    MessageRow,
    Spent,
    TurnRow,
    TurnState,
    UsageTotal,
    message_id,
)

# Stands for every account's user, conversation or job but one's own: no ID and no name is written so.
OTHER = "*"


_ACCEPT = insert(tables.inbox).inline().on_conflict_do_nothing()
_OF_TURN = matching(tables.messages, "turn_id").order_by(tables.messages.c.order, tables.messages.c.id)
_WAITING_OF = select(func.count()).where(
    tables.messages.c.turn_id == tables.turns.c.id,
    tables.messages.c.from_id == given("user"),
    tables.turns.c.state.in_(("queued", "parked")),
)
_ADD_FILE = insert(tables.attachments).on_conflict_do_nothing()
_FILES_OF_TURN = (
    select(tables.attachments)
    .join(tables.messages, tables.messages.c.id == tables.attachments.c.message_id)
    .where(tables.messages.c.turn_id == given("turn_id"))
    .order_by(tables.messages.c.order, tables.messages.c.id, tables.attachments.c.position)
)
_INTERRUPTED_SINCE = (
    matching(tables.turns, "state")
    .where(tables.turns.c.finished_at >= given("moment"))
    .order_by(tables.turns.c.seq)
)


class InboxTable(Repository):
    """Which events were taken over, for ever."""

    def accept(self, key: str, seq: int) -> bool:
        """True the first time ``key`` (Event.key) is seen; ``seq`` is its place in the parent's journal."""
        return self._connection.execute(_ACCEPT, {"key": key, "seq": seq}).rowcount == 1


class MessagesTable(Repository):
    """People's messages, by channel and ts."""

    def add(self, row: MessageRow) -> None:
        """Keep a message. Raises IntegrityError if its id is there already."""
        self._insert(tables.messages, row)

    def get(self, channel_id: str, ts: str) -> MessageRow | None:
        """The message, or None."""
        return self._one(matching(tables.messages, "id"), MessageRow, id=message_id(channel_id, ts))

    def of_turn(self, turn_id: str) -> list[MessageRow]:
        """The messages a turn answers, oldest first."""
        return self._all(_OF_TURN, MessageRow, turn_id=turn_id)

    def waiting_of(self, user: str) -> int:
        """How many messages of the user are in turns that wait to begin or to go on."""
        return int(self._connection.execute(_WAITING_OF, {"given_user": user}).scalar_one())

    def set_text(self, channel_id: str, ts: str, text: str) -> None:
        """Replace a message's content (it was edited)."""
        self._set(channel_id, ts, content=text)

    def set_agent(self, channel_id: str, ts: str, agent: str | None) -> None:
        """Replace what was typed before the colon."""
        self._set(channel_id, ts, agent=agent)

    def attach(self, channel_id: str, ts: str, turn_id: str | None) -> None:
        """Put a message into a turn, out of the one it was in; None = into none (it was withdrawn)."""
        self._set(channel_id, ts, turn_id=turn_id)

    def renew(self, channel_id: str, ts: str) -> None:
        """It is to be answered anew: no agent has been told it as it is now."""
        self._set(channel_id, ts, acked=0, late=0)

    def acknowledge(self, read: Iterable[tuple[str, str]]) -> None:
        """Mark messages (their row's id, and what they said) as read by their agent, whatever turn they are in by now.
        What has been edited since is not read."""
        for row_id, content in read:
            self._update(tables.messages, {"acked": 1}, id=row_id, content=content)

    def move(self, turn_id: str, to: str) -> None:
        """Put the messages of a turn into another."""
        self._update(tables.messages, {"turn_id": to}, turn_id=turn_id)

    def _set(self, channel_id: str, ts: str, **columns: str | int | None) -> None:
        self._update(tables.messages, columns, id=message_id(channel_id, ts))


class AttachmentsTable(Repository):
    """A message's files, in the order they were attached."""

    def add(self, row: AttachmentRow) -> None:
        """Keep an attachment; one that is known stays as it is."""
        self._connection.execute(_ADD_FILE, column_values(row))

    def of_turn(self, turn_id: str) -> list[AttachmentRow]:
        """What came with the messages a turn answers."""
        return self._all(_FILES_OF_TURN, AttachmentRow, turn_id=turn_id)

    def put(self, row: AttachmentRow) -> None:
        """Replace what is known of an attachment."""
        where = {"message_id": row.message_id, "file_id": row.file_id}
        self._update(tables.attachments, column_values(row), **where)


class TurnsTable(Repository):
    """Turns, in the order they were created."""

    def add(self, row: TurnRow) -> None:
        """Keep a new turn."""
        self._insert(tables.turns, row)

    def get(self, turn_id: str) -> TurnRow | None:
        """The turn, or None."""
        return self._one(matching(tables.turns, "id"), TurnRow, id=turn_id)

    def in_states(self, *states: TurnState) -> list[TurnRow]:
        """Every turn in one of these states, oldest first."""
        values = {f"state_{number}": state for number, state in enumerate(states)}
        return self._all(_in_states(*values), TurnRow, **values)

    def interrupted_since(self, moment: str) -> list[TurnRow]:
        """The turns that were interrupted since ``moment`` (ISO 8601), oldest first."""
        return self._all(_INTERRUPTED_SINCE, TurnRow, state="interrupted", moment=moment)

    def newest(self, limit: int, conversation: str | None = None) -> list[TurnRow]:
        """The newest turns, of one conversation or of all, whatever their state, newest first."""
        if conversation is None:
            return self._all(_newest(), TurnRow, limit=limit)
        return self._all(_newest("conversation"), TurnRow, limit=limit, conversation=conversation)

    def update(self, turn_id: str, **fields: str | float | None) -> None:
        """Set fields of TurnRow. Raises KeyError if there is no such turn."""
        if self._update(tables.turns, fields, id=turn_id) == 0:
            raise KeyError(turn_id)

    def spent_between(
        self, first: str, until: str, account: BudgetAccount, *, without: str = ""
    ) -> list[Spent]:
        """Of every turn that began from ``first`` on and before ``until`` (ISO 8601, UTC), but ``without``, a turn's
        id; and of what we asked of models ourselves in that time.

        Summed up for ``account``, so that a day of many turns is a few rows: what is not its own is ``OTHER``'s.
        """
        values = {
            "given_first": first,
            "given_until": until,
            "given_conversation": account.conversation,
        }
        mine = {"given_user_id": account.user, "given_job": account.job, "given_without": without}
        turns = [
            Spent(
                row.agent,
                BudgetAccount(row.user_id, row.conversation, row.job),
                UsageTotal(float(row.usd), int(row.tokens), int(row.turns), float(row.worked_s) / 60),
            )
            for row in self._connection.execute(_spent(), values | mine)
        ]
        return turns + [
            Spent(
                row.purpose,
                BudgetAccount("", row.conversation, row.purpose),
                UsageTotal(float(row.usd), int(row.tokens)),
            )
            for row in self._connection.execute(_expenses(), values)
        ]


class ExpensesTable(Repository):
    """What we asked of models ourselves."""

    def add(self, row: ExpenseRow) -> None:
        """Write it down."""
        self._insert(tables.expenses, row)


@cache
def _in_states(*names: str) -> Select[Any]:
    columns = tables.turns.c
    states = [given(name) for name in names]
    return select(tables.turns).where(columns.state.in_(states)).order_by(columns.seq)


@cache
def _newest(*names: str) -> Select[Any]:
    return matching(tables.turns, *names).order_by(tables.turns.c.seq.desc()).limit(given("limit"))


@cache
def _spent() -> Select[Any]:
    columns = tables.turns.c
    account = (columns.agent, _own(columns.user_id), _own(columns.conversation), _own(columns.job, ""))
    sums = (
        func.count().label("turns"),
        func.coalesce(func.sum(columns.cost_usd), 0.0).label("usd"),
        func.sum(columns.input_tokens + columns.output_tokens).label("tokens"),
        func.sum(columns.worked_s).label("worked_s"),
    )
    began = (columns.started_at >= given("first"), columns.started_at < given("until"))
    return select(*account, *sums).where(*began, columns.id != given("without")).group_by(*account)


@cache
def _expenses() -> Select[Any]:
    columns = tables.expenses.c
    account = (columns.purpose, _own(columns.conversation))
    sums = (
        func.coalesce(func.sum(columns.cost_usd), 0.0).label("usd"),
        func.sum(columns.input_tokens + columns.output_tokens).label("tokens"),
    )
    during = (columns.at >= given("first"), columns.at < given("until"))
    return select(*account, *sums).where(*during).group_by(*account)


def _own(column: ColumnElement[str], *kept: str) -> ColumnElement[str]:
    """The value that was given, or one of those ``kept``; ``OTHER`` for any else."""
    name = str(column.name)
    return case((column.in_((given(name), *kept)), column), else_=OTHER).label(name)
