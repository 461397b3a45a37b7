"""Messages, turns and their use: inbox, messages, files, turns, expenses. Methods run inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select
from sqlalchemy.dialects.sqlite import insert

from codebutler.domain.refs import NO_PERSON, ConversationRef, MessageRef, PersonRef
from codebutler_worker.store import tables
from codebutler_worker.store.mapping import KeyedTable, Repository, RowTable, column_values, given, matching
from codebutler_worker.store.rows import (
    RACE,
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

# Stands for every other account's user, conversation or job: no ID or name is spelled so.
OTHER = "*"
MOST_COMMITS = 100
"""How many of a turn's newest commits are stored."""


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
_LIMITED = (
    matching(tables.turns, "agent")
    .where(
        or_(
            tables.turns.c.state == "done",
            and_(tables.turns.c.state == "stopped", tables.turns.c.reason == "limit"),
        )
    )
    .order_by(tables.turns.c.seq.desc())
    .limit(1)
)
_INTERRUPTED_SINCE = (
    matching(tables.turns, "state")
    .where(tables.turns.c.finished_at >= given("moment"))
    .order_by(tables.turns.c.seq)
)


class InboxTable(Repository):
    """The events taken over so far; kept for ever."""

    def accept(self, key: str, seq: int) -> bool:
        """True the first time ``key`` (Event.key) is seen; ``seq`` is its place in the parent's journal."""
        return self._run(_ACCEPT, {"key": key, "seq": seq}).rowcount == 1


class MessagesTable(RowTable[MessageRow]):
    """People's messages, by channel and ref."""

    table = tables.messages

    def get(self, channel_id: ConversationRef, ref: MessageRef) -> MessageRow | None:
        """The message, or None."""
        return self._one(matching(tables.messages, "id"), MessageRow, id=message_id(channel_id, ref))

    def of_turn(self, turn_id: str) -> list[MessageRow]:
        """The messages a turn answers, oldest first."""
        return self._all(_OF_TURN, MessageRow, turn_id=turn_id)

    def waiting_of(self, user: PersonRef) -> int:
        """How many of the user's messages are in turns that wait to start or to continue."""
        return int(self._run(_WAITING_OF, user=user).fetchone()[0])

    def set_text(self, channel_id: ConversationRef, ref: MessageRef, text: str) -> None:
        """Replace a message's content (it was edited)."""
        self._set(channel_id, ref, content=text)

    def set_agent(self, channel_id: ConversationRef, ref: MessageRef, agent: str | None) -> None:
        """Replace the typed prefix."""
        self._set(channel_id, ref, agent=agent)

    def attach(self, channel_id: ConversationRef, ref: MessageRef, turn_id: str | None) -> None:
        """Move a message into a turn; None = into none (it was withdrawn)."""
        self._set(channel_id, ref, turn_id=turn_id)

    def renew(self, channel_id: ConversationRef, ref: MessageRef) -> None:
        """It needs an answer again: no agent has read its current text."""
        self._set(channel_id, ref, acked=0, late=0)

    def acknowledge(self, read: Iterable[tuple[str, str]]) -> None:
        """Mark messages (row ID and text) as read by their agent, whatever turn they are in by now. An edited
        message is not."""
        for row_id, content in read:
            self._update(tables.messages, {"acked": 1}, id=row_id, content=content)

    def move(self, turn_id: str, to: str, only: Iterable[str] | None = None) -> None:
        """Move the messages of a turn into another: all of them, or ``only`` the rows with these IDs."""
        if only is None:
            self._update(tables.messages, {"turn_id": to}, turn_id=turn_id)
        else:
            for row_id in only:
                self._update(tables.messages, {"turn_id": to}, turn_id=turn_id, id=row_id)

    def _set(self, channel_id: ConversationRef, ref: MessageRef, **columns: str | int | None) -> None:
        self._update(tables.messages, columns, id=message_id(channel_id, ref))


class AttachmentsTable(Repository):
    """A message's files, in the order they were attached."""

    def add(self, row: AttachmentRow) -> None:
        """Add an attachment; a known one stays unchanged."""
        self._run(_ADD_FILE, column_values(row))

    def of_turn(self, turn_id: str) -> list[AttachmentRow]:
        """The attachments of the messages a turn answers."""
        return self._all(_FILES_OF_TURN, AttachmentRow, turn_id=turn_id)

    def put(self, row: AttachmentRow) -> None:
        """Replace an attachment's row."""
        where = {"message_id": row.message_id, "file_id": row.file_id}
        self._update(tables.attachments, column_values(row), **where)


class TurnsTable(KeyedTable[TurnRow]):
    """Turns, in the order they were created."""

    table = tables.turns
    kind = TurnRow

    def in_states(self, *states: TurnState) -> list[TurnRow]:
        """Every turn in one of these states, oldest first."""
        values = {f"state_{number}": state for number, state in enumerate(states)}
        return self._all(_in_states(*values), TurnRow, **values)

    def interrupted_since(self, moment: str) -> list[TurnRow]:
        """The turns that were interrupted since ``moment`` (ISO 8601), oldest first."""
        return self._all(_INTERRUPTED_SINCE, TurnRow, state="interrupted", moment=moment)

    def limited_until(self, agent: str) -> str:
        """When the usage limit ends for which the agent's last turn was handed over; "" if that is unknown or none was,
        or if the agent has worked since."""
        found = self._one(_LIMITED, TurnRow, agent=agent)
        return found.not_before if found is not None and found.state == "stopped" else ""

    def newest(self, limit: int, conversation: str | None = None) -> list[TurnRow]:
        """The newest turns in any state, of one conversation or of all, newest first."""
        if conversation is None:
            return self._all(_newest(), TurnRow, limit=limit)
        return self._all(_newest("conversation"), TurnRow, limit=limit, conversation=conversation)

    def newest_of_each(self) -> list[TurnRow]:
        """The newest turn of each conversation, newest first."""
        return self._all(_newest_of_each(), TurnRow)

    def move(self, conversation: str, to: str) -> None:
        """Move every turn of a conversation into another."""
        self._update(tables.turns, {"conversation": to}, conversation=conversation)

    def update(self, turn_id: str, **fields: str | float | None) -> None:
        """Set fields of TurnRow. Raises KeyError if there is no such turn."""
        if self._update(tables.turns, fields, id=turn_id) == 0:
            raise KeyError(turn_id)

    def add_commits(self, turn_id: str, commits: Iterable[str]) -> None:
        """The turn left these commits as well, by their short IDs; known ones are not added again."""
        turn = self.get(turn_id)
        if turn is not None:
            known = dict.fromkeys((*turn.commits.split(), *commits))
            self.update(turn_id, commits=" ".join([*known][-MOST_COMMITS:]))

    def spent_between(
        self, first: str, until: str, account: BudgetAccount, *, without: str = ""
    ) -> list[Spent]:
        """The use of every turn that started from ``first`` on and before ``until`` (ISO 8601, UTC), except
        ``without``, a turn's ID; and of our own model requests in that time.

        Summed up for ``account``, so that a day of many turns is a few rows: everything that is not its own
        is ``OTHER``'s.
        """
        values = {
            "given_first": first,
            "given_until": until,
            "given_conversation": account.conversation,
        }
        mine = {"given_user_id": account.user, "given_job": account.job, "given_without": without}
        turns = [
            Spent(
                row["agent"],
                BudgetAccount(row["user_id"], row["conversation"], row["job"]),
                UsageTotal(
                    float(row["usd"]), int(row["tokens"]), int(row["turns"]), float(row["worked_s"]) / 60
                ),
            )
            for row in self._run(_spent(), values | mine)
        ]
        return turns + [
            Spent(
                row["purpose"],
                BudgetAccount(NO_PERSON, row["conversation"], row["purpose"]),
                UsageTotal(float(row["usd"]), int(row["tokens"])),
            )
            for row in self._run(_expenses(), values)
        ]


class ExpensesTable(RowTable[ExpenseRow]):
    """The use of our own model requests."""

    table = tables.expenses


@cache
def _in_states(*names: str) -> Select[Any]:
    columns = tables.turns.c
    states = [given(name) for name in names]
    return select(tables.turns).where(columns.state.in_(states)).order_by(columns.seq)


@cache
def _newest(*names: str) -> Select[Any]:
    return matching(tables.turns, *names).order_by(tables.turns.c.seq.desc()).limit(given("limit"))


@cache
def _newest_of_each() -> Select[Any]:
    columns = tables.turns.c
    newest = select(func.max(columns.seq)).group_by(columns.conversation)
    return select(tables.turns).where(columns.seq.in_(newest)).order_by(columns.seq.desc())


@cache
def _spent() -> Select[Any]:
    columns = tables.turns.c
    account = (columns.agent, _own(columns.user_id), _own(_main(columns)), _own(columns.job, ""))
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
    account = (columns.purpose, _own(_main(columns)))
    sums = (
        func.coalesce(func.sum(columns.cost_usd), 0.0).label("usd"),
        func.sum(columns.input_tokens + columns.output_tokens).label("tokens"),
    )
    during = (columns.at >= given("first"), columns.at < given("until"))
    return select(*account, *sums).where(*during).group_by(*account)


def _main(columns: Any) -> ColumnElement[str]:
    """The conversation, or that in which its race is held."""
    ends = func.instr(columns.conversation.concat(RACE), RACE)
    return func.substr(columns.conversation, 1, ends - 1).label("conversation")


def _own(column: ColumnElement[str], *kept: str) -> ColumnElement[str]:
    """The given value if it is one of those ``kept``; else ``OTHER``."""
    name = str(column.name)
    return case((column.in_((given(name), *kept)), column), else_=OTHER).label(name)
