"""The unit of work: one transaction's rows, and the operations to send once it is committed."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import msgspec

from codebutler.domain.clock import Clock
from codebutler.domain.message import Message, said
from codebutler.domain.model import Operation, Post, React, TurnOutcome, Update, Upload, Value
from codebutler.domain.refs import NO_PERSON, NOWHERE, MessageRef, PersonRef
from codebutler.protocol.messages import TurnEnded
from codebutler_worker.store import tables
from codebutler_worker.store.queries import (
    Approvals,
    Attachments,
    Deferred,
    Memories,
    Messages,
    Operations,
    Rows,
    Sessions,
    Turns,
)
from codebutler_worker.store.rows import (
    ApprovalRow,
    AttachmentRow,
    ChannelSessionRow,
    ChoiceRow,
    DeferredRow,
    ExpenseRow,
    FactRow,
    InboxRow,
    MemoryChangeRow,
    MemoryLineRow,
    MemoryReviewRow,
    MessageRow,
    OperationKind,
    OutboxRow,
    PullNewsRow,
    PullRow,
    SessionRow,
    TurnRow,
)
from codebutler_worker.store.search import Search

_KINDS: dict[type[Operation | TurnEnded], OperationKind] = {
    Post: "post",
    Update: "update",
    React: "react",
    Upload: "upload",
    TurnEnded: "ended",
}

Outgoing = tuple[OutboxRow, Operation | TurnEnded]
"""A committed operation: its row, without the payload, and what is sent."""


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """Where a turn or a command posts, and on whose account. ``only_for``: the one user who sees the posts."""

    conversation: str
    thread: MessageRef | None
    turn_id: str | None = None
    only_for: PersonRef = NO_PERSON


class UnitOfWork:
    """The tables of one open transaction, and ``operations``: what to send once it is committed. Valid only
    within the call that received it.

    ``redact`` comes before a cut: the parent can recognise a secret only while it is whole.
    """

    def __init__(self, raw: sqlite3.Connection, clock: Clock, redact: Callable[[str], str] = str) -> None:
        self.now = clock.now()
        self.stamp = iso(self.now)
        """Now, as rows keep it."""
        self.redact = redact
        self.operations: list[Outgoing] = []
        self.inbox = Rows(raw, tables.inbox, InboxRow)
        self.messages = Messages(raw, tables.messages, MessageRow, '"order", id')
        self.attachments = Attachments(raw, tables.attachments, AttachmentRow, "position")
        self.turns = Turns(raw, tables.turns, TurnRow)
        self.sessions = Sessions(
            Rows(raw, tables.threads, SessionRow), Rows(raw, tables.sessions, ChannelSessionRow)
        )
        self.choices = Rows(raw, tables.choices, ChoiceRow)
        self.outbox = Operations(raw, tables.outbox, OutboxRow)
        self.approvals = Approvals(raw, tables.approvals, ApprovalRow, "requested_at, rowid")
        self.deferred = Deferred(raw, tables.errands, DeferredRow, "created_at, id")
        self.memories = Memories(raw, tables.memory_changes, MemoryChangeRow)
        self.memory_lines = Rows(raw, tables.memory_lines, MemoryLineRow)
        self.memory_reviews = Rows(raw, tables.memory_reviews, MemoryReviewRow)
        self.facts = Rows(raw, tables.facts, FactRow, "key")
        self.expenses = Rows(raw, tables.expenses, ExpenseRow)
        self.pulls = Rows(raw, tables.pulls, PullRow, "next_at")
        self.pull_news = Rows(raw, tables.pull_news, PullNewsRow)
        self.search = Search(raw, tables.turns, TurnRow)

    def post(
        self,
        place: ThreadPlace,
        message: Message | str,
        *,
        after: str | None = None,
        mention: PersonRef = NO_PERSON,
        op_id: str | None = None,
        value: Value = "answer",
    ) -> str:
        """Post into the place's thread, once the operation ``after`` is done, and mention ``mention`` (a
        user); returns the operation's ID, which is ``op_id`` if given. ``value``: see `Value`."""
        post = Post(
            message=said(message) if isinstance(message, str) else message,
            thread=place.thread,
            only_for=place.only_for,
            mention=mention,
            value=value,
        )
        return self.add(place, post, after, op_id)

    def react(
        self, place: ThreadPlace, react: React, *, after: str | None = None, op_id: str | None = None
    ) -> None:
        """Set or remove a reaction, once the operation ``after`` is done; a message without a ref (a slash
        command) has none."""
        if react.target:
            self.add(place, react, after, op_id)

    def ended(
        self, place: ThreadPlace, messages: Iterable[MessageRef], outcome: TurnOutcome, agent: str = ""
    ) -> None:
        """Report the outcome of these messages (their ref), once everything posted before is in the chat; ``agent``
        is whose turn it was."""
        known = tuple(ref for ref in messages if ref)
        op_id = uuid.uuid4().hex
        thread = place.thread or NOWHERE
        ending = TurnEnded(op_id=op_id, thread=thread, messages=known, outcome=outcome, agent=agent)
        self.add(place, ending, op_id=op_id)

    def edit(
        self, place: ThreadPlace, op_id: str, message: Message, *, value: Value = "progress"
    ) -> str | None:
        """Replace the content of one of our posts, sent or not; None if the chat has refused that post."""
        target = self.outbox.get(op_id)
        if target is None or target.state == "failed":
            return None
        update = Update(target=target.ref or NOWHERE, message=message, value=value)
        return self.add(place, update, None if target.ref else op_id)

    def edit_ref(self, place: ThreadPlace, ref: MessageRef, message: Message) -> str:
        """Replace the content of one of our posts whose ref is known: a decided card; returns the operation's
        ID."""
        return self.add(place, Update(target=ref, message=message, value="notice"))

    def add(
        self,
        place: ThreadPlace,
        operation: Operation | TurnEnded,
        target_op_id: str | None = None,
        op_id: str | None = None,
    ) -> str:
        """Put an operation into the outbox; returns its ID, which is ``op_id`` if given."""
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
        # A file is large: store it once.
        self.operations.append((replace(row, payload=""), operation))
        return row.op_id


def iso(moment: datetime) -> str:
    """A moment as rows store it: ISO 8601, UTC, microseconds, so that text order is time order."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def place_of(turn: TurnRow) -> ThreadPlace:
    """Where a turn posts."""
    return ThreadPlace(turn.conversation, turn.thread or None, turn.id)
