"""A transaction in the making: its rows, and what is to be said when they have been committed."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec
from sqlalchemy import Connection

from codebutler.domain.clock import Clock
from codebutler.domain.message import Message, said
from codebutler.domain.model import Operation, Post, React, TurnOutcome, Update, Upload, Value
from codebutler.protocol.messages import TurnEnded
from codebutler_worker.store.memory import FactsTable, MemoriesTable, SessionsTable
from codebutler_worker.store.outbox import ApprovalsTable, DeferredTable, OutboxTable
from codebutler_worker.store.rows import OperationKind, OutboxRow, TurnRow
from codebutler_worker.store.turns import (
    AttachmentsTable,
    ExpensesTable,
    InboxTable,
    MessagesTable,
    TurnsTable,
)

_KINDS: dict[type[Operation | TurnEnded], OperationKind] = {
    Post: "post",
    Update: "update",
    React: "react",
    Upload: "upload",
    TurnEnded: "ended",
}


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """Where something is said, and on whose account. ``only_for``: the one user who sees the posts."""

    conversation: str
    thread_ts: str | None
    turn_id: str | None = None
    only_for: str = ""


class UnitOfWork:
    """The tables of one open transaction, and ``operations``: what is to be said once it is committed. Valid only
    within the call that received it.

    ``redact``: for what is to be cut, as the parent can tell a secret only while it is whole.
    """

    def __init__(self, connection: Connection, clock: Clock, redact: Callable[[str], str] = str) -> None:
        self.now = clock.now()
        self.redact = redact
        self.operations: list[tuple[OutboxRow, Operation | TurnEnded]] = []
        self.inbox = InboxTable(connection)
        self.messages = MessagesTable(connection)
        self.attachments = AttachmentsTable(connection)
        self.turns = TurnsTable(connection)
        self.sessions = SessionsTable(connection)
        self.outbox = OutboxTable(connection)
        self.approvals = ApprovalsTable(connection)
        self.deferred = DeferredTable(connection)
        self.memories = MemoriesTable(connection)
        self.facts = FactsTable(connection)
        self.expenses = ExpensesTable(connection)

    @property
    def stamp(self) -> str:
        """Now, as rows keep it."""
        return iso(self.now)

    def post(
        self,
        place: ThreadPlace,
        message: Message | str,
        *,
        after: str | None = None,
        mention: str = "",
        op_id: str | None = None,
        value: Value = "answer",
    ) -> str:
        """Say something in the place's thread, once the operation ``after`` is done, and call ``mention`` (a user);
        returns the operation's id, which is ``op_id`` if that is given. ``value``: see `Value`."""
        post = Post(
            message=said(message) if isinstance(message, str) else message,
            thread_ts=place.thread_ts,
            only_for=place.only_for,
            mention=mention,
            value=value,
        )
        return self.add(place, post, after, op_id)

    def react(
        self, place: ThreadPlace, react: React, *, after: str | None = None, op_id: str | None = None
    ) -> None:
        """Set or take away a reaction, once the operation ``after`` is done; a message without a ts (a slash
        command) has none."""
        if react.target_ts:
            self.add(place, react, after, op_id)

    def ended(self, place: ThreadPlace, messages: Iterable[str], outcome: TurnOutcome) -> None:
        """Tell who waits for these messages (their ts) what became of them, once all that is said before is there."""
        known = tuple(ts for ts in messages if ts)
        op_id = uuid.uuid4().hex
        ending = TurnEnded(op_id=op_id, thread_ts=place.thread_ts or "", messages=known, outcome=outcome)
        self.add(place, ending, op_id=op_id)

    def edit(
        self, place: ThreadPlace, op_id: str, message: Message, *, value: Value = "progress"
    ) -> str | None:
        """Replace the content of a post of ours, sent or not; None if the chat has refused that post."""
        target = self.outbox.get(op_id)
        if target is None or target.state == "failed":
            return None
        update = Update(target_ts=target.ts or "", message=message, value=value)
        return self.add(place, update, None if target.ts else op_id)

    def edit_ts(self, place: ThreadPlace, ts: str, message: Message) -> str:
        """Replace the content of a post of ours whose ts is known: a card that is decided; returns the operation's
        id."""
        return self.add(place, Update(target_ts=ts, message=message, value="notice"))

    def add(
        self,
        place: ThreadPlace,
        operation: Operation | TurnEnded,
        target_op_id: str | None = None,
        op_id: str | None = None,
    ) -> str:
        """Put an operation into the outbox; returns its id, which is ``op_id`` if that is given."""
        row = OutboxRow(
            op_id=op_id or uuid.uuid4().hex,
            turn_id=place.turn_id,
            conversation=place.conversation,
            kind=_KINDS[type(operation)],
            payload=msgspec.json.encode(operation).decode(),
            target_op_id=target_op_id,
            created_at=self.stamp,
        )
        self.outbox.add(row)
        # A file is large: once is enough.
        self.operations.append((replace(row, payload=""), operation))
        return row.op_id


def iso(moment: datetime) -> str:
    """A moment as rows keep it: ISO 8601, UTC, microseconds, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def place_of(turn: TurnRow) -> ThreadPlace:
    """Where a turn speaks."""
    return ThreadPlace(turn.conversation, turn.thread_ts or None, turn.id)
