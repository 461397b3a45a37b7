"""Repositories of what goes out and what people are asked: outbox, approvals."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, case, func, select, text, update

from codebutler.clock import Clock
from codebutler_worker.store import tables
from codebutler_worker.store.mapping import every, one, values
from codebutler_worker.store.rows import ApprovalRow, ApprovalState, OutboxRow


class Outbox:
    """Operations for Slack, committed before they are sent, in the order they were committed."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    def add(self, row: OutboxRow) -> None:
        """Keep an operation; its ``seq`` is given here."""
        self._connection.execute(tables.outbox.insert().values(values(row, without="seq")))

    def get(self, op_id: str) -> OutboxRow | None:
        """The operation, or None."""
        return one(self._connection, select(tables.outbox).where(tables.outbox.c.op_id == op_id), OutboxRow)

    def pending(self) -> list[OutboxRow]:
        """What has neither taken effect nor been refused, oldest first."""
        columns = tables.outbox.c
        query = select(tables.outbox).where(columns.state == "pending").order_by(columns.seq)
        return every(self._connection, query, OutboxRow)

    def count_pending(self) -> int:
        """How many operations wait."""
        query = select(func.count()).select_from(tables.outbox).where(tables.outbox.c.state == "pending")
        return self._connection.execute(query).scalar_one()

    def posted(self, op_id: str, ts: str) -> None:
        """It took effect as message ``ts`` ("" where there is none). An uploaded file's content is let go."""
        columns = tables.outbox.c
        payload = case((columns.kind == "upload", ""), else_=columns.payload)
        self._end(op_id, state="posted", ts=ts, payload=payload)

    def failed(self, op_id: str, code: str) -> None:
        """Slack refused it for good; ``code`` is its word for why."""
        self._end(op_id, state="failed", code=code)

    def replace_update(
        self, target_op_id: str, payload: str, op_id: str, in_flight: Collection[str] = ()
    ) -> str:
        """Make ``payload`` the newest update of the post ``target_op_id``; returns the op that carries it.

        An update that still waits is overwritten in place, unless it is ``in_flight`` (handed over, its
        outcome not known): overwriting that one would lose the new content. Otherwise ``op_id`` is added, for
        the target's turn and conversation. Raises KeyError if the target is unknown.
        """
        columns = tables.outbox.c
        waiting = select(columns.op_id).where(
            columns.target_op_id == target_op_id,
            columns.kind == "update",
            columns.state == "pending",
            columns.op_id.not_in(in_flight),
        )
        found: str | None = self._connection.execute(waiting.order_by(columns.seq.desc())).scalars().first()
        if found is not None:
            self._connection.execute(
                update(tables.outbox).where(columns.op_id == found).values(payload=payload)
            )
            return found
        target = self.get(target_op_id)
        if target is None:
            raise KeyError(target_op_id)
        self.add(
            OutboxRow(
                op_id=op_id,
                conversation=target.conversation,
                kind="update",
                payload=payload,
                created_at=self._clock.now().isoformat(),
                turn_id=target.turn_id,
                target_op_id=target_op_id,
            )
        )
        return op_id

    def _end(self, op_id: str, **fields: object) -> None:
        columns = tables.outbox.c
        pending = update(tables.outbox).where(columns.op_id == op_id, columns.state == "pending")
        self._connection.execute(pending.values(**fields))


_ASKED = text("approvals.rowid")
"""Of what is asked at the same moment, the first comes first."""


class Approvals:
    """Questions to people; each is decided once."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock

    def add(self, row: ApprovalRow) -> None:
        """Keep a new question."""
        self._connection.execute(tables.approvals.insert().values(values(row)))

    def get(self, approval_id: str) -> ApprovalRow | None:
        """The question, or None."""
        query = select(tables.approvals).where(tables.approvals.c.id == approval_id)
        return one(self._connection, query, ApprovalRow)

    def of_card(self, message_op_id: str) -> list[ApprovalRow]:
        """The questions that one card asks, in its order."""
        columns = tables.approvals.c
        query = select(tables.approvals).where(columns.message_op_id == message_op_id)
        return every(self._connection, query.order_by(columns.requested_at, _ASKED), ApprovalRow)

    def granted(self, conversation: str, agent: str, session_id: str) -> list[ApprovalRow]:
        """What people have allowed for a whole session of an agent."""
        columns, turns = tables.approvals.c, tables.turns.c
        query = (
            select(tables.approvals)
            .join(tables.turns, turns.id == columns.turn_id)
            .where(columns.conversation == conversation, turns.agent == agent)
            .where(turns.session_id == session_id, columns.state == "allowed", columns.for_session == 1)
        )
        return every(self._connection, query, ApprovalRow)

    def vote(self, approval_id: str, votes: str) -> None:
        """Keep who has allowed a question that more people have to allow."""
        columns = tables.approvals.c
        pending = update(tables.approvals).where(columns.id == approval_id, columns.state == "pending")
        self._connection.execute(pending.values(votes=votes))

    def grant(self, approval_id: str) -> None:
        """What a decided question covers is allowed for the rest of the session."""
        mine = update(tables.approvals).where(tables.approvals.c.id == approval_id)
        self._connection.execute(mine.values(for_session=1))

    def pending(self, turn_id: str | None = None) -> list[ApprovalRow]:
        """What is still undecided (of one turn), oldest first."""
        columns = tables.approvals.c
        query = select(tables.approvals).where(columns.state == "pending")
        if turn_id is not None:
            query = query.where(columns.turn_id == turn_id)
        return every(self._connection, query.order_by(columns.requested_at, _ASKED), ApprovalRow)

    def decide(self, approval_id: str, state: ApprovalState, decided_by: str, reason: str = "") -> bool:
        """Decide a pending question. False if it was decided before, or is unknown: then nothing changes."""
        columns = tables.approvals.c
        pending = update(tables.approvals).where(columns.id == approval_id, columns.state == "pending")
        decided_at = self._clock.now().isoformat()
        decided = pending.values(state=state, decided_by=decided_by, decided_at=decided_at, reason=reason)
        return self._connection.execute(decided).rowcount == 1
