"""What is not over yet: outgoing operations, questions to people, deferred commands, followed pull requests."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Select, case, delete, func, select, text, update
from sqlalchemy.sql.dml import Delete

from codebutler.domain.refs import MessageRef, PersonRef
from codebutler_worker.store import tables
from codebutler_worker.store.mapping import KeyedTable, Repository, given, matching
from codebutler_worker.store.rows import (
    ApprovalRow,
    ApprovalState,
    DeferredRow,
    OutboxRow,
    PullNewsRow,
    PullRow,
)

_PENDING = matching(tables.outbox, "state").order_by(tables.outbox.c.seq)
_OVER = (
    update(tables.outbox)
    .where(tables.outbox.c.op_id == given("op_id"), tables.outbox.c.state == given("state"))
    .values(payload=case((tables.outbox.c.kind == "upload", ""), else_=tables.outbox.c.payload))
)
_DECIDED_BY = matching(tables.approvals, "decided_by").order_by(text("approvals.rowid DESC")).limit(20)
_GRANTED = (
    select(tables.approvals)
    .join(tables.turns, tables.turns.c.id == tables.approvals.c.turn_id)
    .where(tables.approvals.c.conversation == given("conversation"), tables.turns.c.agent == given("agent"))
    .where(tables.turns.c.session_id == given("session_id"))
    .where(tables.approvals.c.state == "allowed", tables.approvals.c.for_session == 1)
)
_DEFERRED = select(tables.errands).order_by(tables.errands.c.created_at, tables.errands.c.id)
_BEGIN = (
    update(tables.errands)
    .where(tables.errands.c.id == given("id"))
    .values(attempts=tables.errands.c.attempts + 1)
)


class OutboxTable(KeyedTable[OutboxRow]):
    """Operations for the chat, committed before they are sent, in the order they were committed."""

    table = tables.outbox
    kind = OutboxRow
    key = "op_id"
    generated = "seq"

    def last_offer(self, turn_id: str, action: str) -> OutboxRow | None:
        """The newest post about a turn that has a button for ``action`` and is in the chat."""
        return self._one(_last_offer(), OutboxRow, turn_id=turn_id, action=action)

    def pending(self) -> list[OutboxRow]:
        """Pending operations, oldest first."""
        return self._all(_PENDING, OutboxRow, state="pending")

    def posted(self, op_id: str, ref: MessageRef) -> None:
        """It took effect as message ``ref`` ("" if it has none). The content of an uploaded file is dropped."""
        self._run(_OVER, {"state": "posted", "ref": ref}, op_id=op_id, state="pending")

    def failed(self, op_id: str, code: str) -> None:
        """The chat refused it for good, with the error ``code``. A file's content is dropped."""
        self._run(_OVER, {"state": "failed", "code": code}, op_id=op_id, state="pending")


class ApprovalsTable(KeyedTable[ApprovalRow]):
    """Questions to people; each is decided once."""

    table = tables.approvals
    kind = ApprovalRow

    def of_turn(self, turn_id: str) -> list[ApprovalRow]:
        """Every question of a turn, oldest first."""
        return self._all(_asked_by("turn_id"), ApprovalRow, turn_id=turn_id)

    def of_card(self, message_op_id: str) -> list[ApprovalRow]:
        """The questions on a card, in order."""
        return self._all(_asked_by("message_op_id"), ApprovalRow, message_op_id=message_op_id)

    def granted(self, conversation: str, agent: str, session_id: str) -> list[ApprovalRow]:
        """Grants for a whole session of an agent."""
        about = {"conversation": conversation, "agent": agent, "session_id": session_id}
        return self._all(_GRANTED, ApprovalRow, **about)

    def decided_by(self, user: PersonRef) -> list[ApprovalRow]:
        """The last few questions that a user decided, newest first."""
        return self._all(_DECIDED_BY, ApprovalRow, decided_by=user)

    def vote(self, approval_id: str, votes: str) -> None:
        """Record who has allowed a question that more people have to allow."""
        self._update(tables.approvals, {"votes": votes}, id=approval_id, state="pending")

    def grant(self, approval_id: str) -> None:
        """Grant what a decided question covers for the rest of the session."""
        self._update(tables.approvals, {"for_session": 1}, id=approval_id)

    def pending(self, turn_id: str | None = None) -> list[ApprovalRow]:
        """The undecided questions (of one turn), oldest first."""
        if turn_id is None:
            return self._all(_asked_by("state"), ApprovalRow, state="pending")
        return self._all(_asked_by("state", "turn_id"), ApprovalRow, state="pending", turn_id=turn_id)

    def decide(
        self, approval_id: str, state: ApprovalState, decided_by: PersonRef, reason: str = "", *, at: str
    ) -> bool:
        """Decide a pending question. False, and no change, if it was decided before or is unknown."""
        to = {"state": state, "decided_by": decided_by, "decided_at": at, "reason": reason}
        return self._update(tables.approvals, to, id=approval_id, state="pending") == 1


class DeferredTable(KeyedTable[DeferredRow]):
    """Commands that take a moment, kept until they are answered."""

    table = tables.errands
    kind = DeferredRow

    def all(self) -> list[DeferredRow]:
        """Every unanswered command, oldest first."""
        return self._all(_DEFERRED, DeferredRow)

    def go_on(self, command_id: str, argument: str) -> None:
        """A step of a long one is done: store the next one, and reset its attempts."""
        self._update(tables.errands, {"argument": argument, "attempts": 0}, id=command_id)

    def begin(self, command_id: str) -> None:
        """Count an attempt."""
        self._run(_BEGIN, id=command_id)

    def done(self, command_id: str) -> None:
        """Delete a command that was answered or withdrawn."""
        self._delete(tables.errands, id=command_id)


@cache
def _asked_by(*names: str) -> Select[Any]:
    # Commands of the same moment run in the order they were given.
    return matching(tables.approvals, *names).order_by(
        tables.approvals.c.requested_at, text("approvals.rowid")
    )


@cache
def _last_offer() -> Select[Any]:
    columns = tables.outbox.c
    query = matching(tables.outbox, "turn_id").where(columns.kind == "post", columns.state == "posted")
    button = func.json_each(columns.payload, "$.message.buttons").table_valued("value").c.value
    offered = func.json_extract(button, "$.action") == given("action")
    return query.where(select(1).where(offered).exists()).order_by(columns.seq.desc())


# Pull requests that are followed, and what is new about them.


class PullsTable(Repository):
    """Pull requests, kept from when they are opened: nothing about one is reported twice."""

    def put(self, row: PullRow) -> None:
        """Keep it, new or changed."""
        self._upsert(tables.pulls, row)

    def get(self, pull_id: str) -> PullRow | None:
        """The pull request, or None."""
        return self._one(matching(tables.pulls, "id"), PullRow, id=pull_id)

    def followed(self) -> list[PullRow]:
        """Those that are followed; the next one due first."""
        return self._all(_followed(), PullRow, state="open")

    def add_news(self, row: PullNewsRow, oldest: str) -> None:
        """Keep news that can be handed to an agent, and delete news older than ``oldest``."""
        self._run(_old_news(), oldest=oldest)
        self._upsert(tables.pull_news, row)

    def news(self, news_id: str) -> PullNewsRow | None:
        """The news, or None if it is unknown or too old."""
        return self._one(matching(tables.pull_news, "id"), PullNewsRow, id=news_id)


@cache
def _followed() -> Select[Any]:
    return matching(tables.pulls, "state").order_by(tables.pulls.c.next_at)


@cache
def _old_news() -> Delete:
    return delete(tables.pull_news).where(tables.pull_news.c.created_at < given("oldest"))
