"""The unit of work: one transaction's rows, and the operations to send once it is committed; and the store: one
connection, and one thread that runs transactions one after another and deletes old rows."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.domain.message import Message, said
from codebutler.domain.model import Operation, Post, React, TurnOutcome, Update, Upload, Value
from codebutler.domain.refs import NO_PERSON, NOWHERE, MessageRef, PersonRef
from codebutler.platform import sqlitefile
from codebutler.platform.backups import Restored
from codebutler.platform.files import FileLock
from codebutler.platform.kill_points import reached
from codebutler.protocol.messages import TurnEnded
from codebutler_worker.store import tables
from codebutler_worker.store.queries import (
    Approvals,
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
    TurnState,
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

T = TypeVar("T")

_SETTLE = """
    UPDATE outbox SET state = ?, ref = ?, code = ?, payload = CASE kind WHEN 'upload' THEN '' ELSE payload END
    WHERE op_id = ? AND state = 'pending'
"""
_OPEN = """
SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'pending')
    OR EXISTS (SELECT 1 FROM turns WHERE state IN ({}))
    OR EXISTS (SELECT 1 FROM errands)
"""
# As long as the daily backups reach back. Nothing looks for older ones: the chat is asked about pending operations
# only, others wait for pending ones only, and a turn's newest messages are edited until its end only.
KEPT = timedelta(days=7)
# Each batch is a transaction; others wait some milliseconds for it.
BATCH = 500
# Reads old rows only: the first operations are the oldest, so the daily cost does not depend on the store's length.
_BATCH = "SELECT max(seq), min(created_at) FROM (SELECT seq, created_at FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?)"
_FORGET = """
DELETE FROM outbox AS old
WHERE seq > ? AND seq <= ?
    AND state IN ('posted', 'failed')
    AND created_at < ?
    AND (turn_id IS NULL OR EXISTS (
        SELECT 1 FROM turns WHERE turns.id = old.turn_id AND turns.state IN ('done', 'failed', 'stopped')
    ))
    AND NOT EXISTS (
        SELECT 1 FROM outbox AS waiting WHERE waiting.target_op_id = old.op_id AND waiting.state = 'pending'
    )
"""


class ThreadPlace(Struct, frozen=True):
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
        self.raw = raw
        self.inbox = Rows(raw, tables.inbox, InboxRow)
        self.messages = Messages(raw, tables.messages, MessageRow, '"order", id')
        self.attachments = Rows(raw, tables.attachments, AttachmentRow, "position")
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

    def settle(self, op_id: str, ref: str = "", code: str = "") -> None:
        """The operation took effect as message ``ref`` ("" if it has none), or the chat refused it for good, with the
        error ``code``. The content of an uploaded file is dropped."""
        outcome = ("failed", None, code) if code else ("posted", ref, None)
        self.raw.execute(_SETTLE, (*outcome, op_id))

    def add(
        self,
        place: ThreadPlace,
        operation: Operation | TurnEnded,
        after: str | None = None,
        op_id: str | None = None,
    ) -> str:
        """Put an operation into the outbox, to be sent once the operation ``after`` is done; returns its ID, which is
        ``op_id`` if given. A reaction to a message without a ref (a slash command) is left out: ""."""
        if isinstance(operation, React) and not operation.target:
            return ""
        row = OutboxRow(
            op_id=op_id or uuid.uuid4().hex,
            turn_id=place.turn_id,
            conversation=place.conversation,
            kind=_KINDS[type(operation)],
            payload=msgspec.json.encode(operation).decode(),
            target_op_id=after,
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


class Store:
    """One connection in one thread: transactions run one after another, in the order of the calls.

    ``lock`` keeps other writers away; closing the store releases it. ``restored``: a backup has replaced a
    lost file. ``thread`` is the one to work in, if it exists already.
    """

    def __init__(
        self,
        path: Path,
        raw: sqlite3.Connection,
        clock: Clock,
        lock: FileLock,
        restored: Restored | None = None,
        thread: ThreadPoolExecutor | None = None,
    ) -> None:
        self.restored = restored
        self._path = path
        self._lock = lock
        self._raw = raw
        raw.row_factory = sqlite3.Row
        self._clock = clock
        self._anchor = sqlitefile.Anchor(path)
        self._thread = thread or store_thread()
        self._closed = False

    async def run(
        self,
        work: Callable[[UnitOfWork], T],
        redact: Callable[[str], str] = str,
        publish: Callable[[Sequence[Outgoing]], Awaitable[None]] | None = None,
    ) -> T:
        """Run ``work`` as one transaction on the writer's thread, then ``publish`` its operations; it is committed when
        this returns.

        If ``work`` raises, everything is rolled back and its exception is raised here. Raises StoreError if
        the disk or the file is at fault (nothing is stored then; a retry is safe). If the caller is cancelled
        while the work runs, the transaction is still committed or rolled back, but nothing is published.
        """
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        loop = asyncio.get_running_loop()
        result, operations = await loop.run_in_executor(self._thread, self._transact, work, redact)
        if publish is not None and operations:
            reached("outbox.after")
            await publish(operations)
        return result

    async def anything_open(self, unfinished: Collection[TurnState]) -> bool:
        """Whether an operation or a deferred command is left, or a turn in one of these states. Raises StoreError."""
        return await self.exists(_OPEN.format(", ".join("?" * len(unfinished))), *unfinished)

    async def exists(self, query: str, *given: object) -> bool:
        """The result of a ``SELECT EXISTS …``. Raises StoreError."""
        return await self.run(lambda uow: bool(uow.raw.execute(query, given).fetchone()[0]))

    async def forget_old(self, now: datetime) -> None:
        """Delete finished rows that are old, in small transactions (see ``forget_some``). Raises StoreError."""
        last: int | None = 0
        while last is not None:
            last = await self.run(partial(forget_some, now=now, after=last))

    async def close(self) -> None:
        """Finish the queued transactions, then close the file. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._shut)
        self._thread.shutdown()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _transact(
        self, work: Callable[[UnitOfWork], T], redact: Callable[[str], str]
    ) -> tuple[T, list[Outgoing]]:
        if not self._anchor.holds:
            raise StoreError(f"{self._path} was removed or replaced while it was in use: restart CodeButler")
        try:
            self._raw.execute("BEGIN IMMEDIATE")
            uow = UnitOfWork(self._raw, self._clock, redact)
            result = work(uow)
            if uow.operations:
                reached("outbox.before")
            self._raw.execute("COMMIT")
            return result, uow.operations
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise sqlitefile.store_error(self._path, error) from error
        finally:
            # A failed COMMIT (a full disk, a broken reference) also leaves SQLite's transaction open.
            if self._raw.in_transaction:
                self._raw.rollback()

    def _shut(self) -> None:
        self._raw.close()
        self._lock.release()


def store_thread() -> ThreadPoolExecutor:
    """The one thread in which a store works."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")


def forget_some(uow: UnitOfWork, now: datetime, after: int) -> int | None:
    """Delete the old finished ones of a batch of operations whose ``seq`` is above ``after``. Returns the last one's
    ``seq``, None if the batch has no old ones."""
    before = iso(now - KEPT)
    last: int | None
    last, oldest = uow.raw.execute(_BATCH, (after, BATCH)).fetchone()
    if last is None or oldest >= before:
        return None
    uow.raw.execute(_FORGET, (after, last, before))
    return last
