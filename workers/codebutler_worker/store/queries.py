"""Rows of a table as records, whose fields carry the columns' names and the first of which is the key; and what the
tables are asked beyond the values of their columns. Within one transaction.

Plain statements for sqlite3: SQLAlchemy would compile each one, which touches most pages that a worker shares with the
fork server.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct
from sqlalchemy import Table

from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler_worker.store.rows import (
    RACE,
    ApprovalRow,
    ApprovalState,
    BudgetAccount,
    ChannelSessionRow,
    DeferredRow,
    MemoryChangeRow,
    MessageRow,
    OutboxRow,
    SessionRow,
    Spent,
    TurnRow,
    UsageTotal,
    channel_of,
    race_in,
)

Row = TypeVar("Row", bound=Struct)


@dataclass(frozen=True, slots=True)
class Rows(Generic[Row]):
    """The rows of one table, within one transaction.

    ``where`` gives columns their values; a tuple stands for any of its values. ``order`` (SQL) is that of the rows
    found, by default that in which they were added. A column that the table does not have is a KeyError.
    """

    raw: sqlite3.Connection
    table: Table
    kind: type[Row]
    order: str = "rowid"

    def find(self, *, newest: int = 0, **where: object) -> list[Row]:
        """All rows with these values, or the ``newest`` so many of them: those that were added last, newest first."""
        order = f"rowid DESC LIMIT {newest}" if newest else self.order
        sql = f"SELECT {columns_of(self.kind)} FROM {self.table}"  # noqa: S608 - our own names
        return [self.kind(**row) for row in self._execute(sql, where, end=f"ORDER BY {order}")]

    def get(self, key: str | None, /, **where: object) -> Row | None:
        """The row with that key and these values, None if there is none."""
        values: dict[str, Any] = {next(iter(self.kind.__struct_fields__)): key, **where}
        found = self.find(**values)
        return found[0] if found else None

    def add(self, row: Row, *, known: Literal["fail", "keep", "replace"] = "fail") -> bool:
        """Add a row; returns whether it did. What to do if its key is ``known``: raise sqlite3.IntegrityError, keep the
        row that is there, or replace all of it but the key."""
        names = tuple(self.kind.__struct_fields__)
        sql = f"INSERT INTO {self.table} ({columns_of(self.kind)}) VALUES ({', '.join('?' * len(names))})"  # noqa: S608 - our own names
        if known == "keep":
            sql += " ON CONFLICT DO NOTHING"
        elif known == "replace":
            key = [column.name for column in self.table.primary_key]
            new = ", ".join(f'"{name}" = excluded."{name}"' for name in names if name not in key)
            sql += f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {new}"
        return self.raw.execute(sql, [getattr(row, name) for name in names]).rowcount > 0

    def update(self, key: str, /, **fields: object) -> None:
        """Set fields of the row with that key. Raises KeyError if there is none."""
        if not self.change(fields, **{next(iter(self.kind.__struct_fields__)): key}):
            raise KeyError(key)

    def change(self, to: Mapping[str, object], /, **where: object) -> int:
        """Set fields of all rows with these values; returns the number of rows."""
        new = ", ".join(f'"{self.table.c[name].name}" = ?' for name in to)
        return self._execute(f"UPDATE {self.table} SET {new}", where, *to.values()).rowcount  # noqa: S608 - our own names

    def delete(self, **where: object) -> int:
        """Delete all rows with these values; returns their number."""
        return self._execute(f"DELETE FROM {self.table}", where).rowcount  # noqa: S608 - our own names

    def _execute(
        self, sql: str, where: Mapping[str, object], *values: object, end: str = ""
    ) -> sqlite3.Cursor:
        """Run the statement, which has these ``values``, for the rows that ``where`` describes."""
        terms, known = ["1"], [*values]
        for name, value in where.items():
            several = value if isinstance(value, tuple) else (value,)
            terms.append(f'"{self.table.c[name].name}" IN ({", ".join("?" * len(several))})')
            known += several
        return self.raw.execute(f"{sql} WHERE {' AND '.join(terms)} {end}", known)


@cache
def columns_of(kind: Any, table: str = "") -> str:
    """The columns of a row, perhaps with their table, for a statement."""
    return ", ".join(f'{table}."{name}"' if table else f'"{name}"' for name in kind.__struct_fields__)


# Stands for every other account's user, conversation or job: no ID or name is spelled so.
OTHER = "*"
MOST_COMMITS = 100
"""How many of a turn's newest commits are stored."""
CHANNEL_AGENT = "claude"

_WAITING_OF = """
    SELECT count(*) FROM messages JOIN turns ON turns.id = messages.turn_id
    WHERE messages.from_id = ? AND turns.state IN ('queued', 'parked')
"""
_LIMITED = """
    SELECT state, not_before FROM turns
    WHERE agent = ? AND (state = 'done' OR state = 'stopped' AND reason = 'limit') ORDER BY seq DESC LIMIT 1
"""
_INTERRUPTED_SINCE = f"""
    SELECT {columns_of(TurnRow)} FROM turns WHERE state = 'interrupted' AND finished_at >= ? ORDER BY seq
"""  # noqa: S608 - our own names
_NEWEST_OF_EACH = f"""
    SELECT {columns_of(TurnRow)} FROM turns
    WHERE seq IN (SELECT max(seq) FROM turns GROUP BY conversation) ORDER BY seq DESC
"""  # noqa: S608 - our own names
# A conversation counts as that in which its race is held.
_MAIN = f"substr(conversation, 1, instr(conversation || '{RACE}', '{RACE}') - 1)"
_OWN_CONVERSATION = f"CASE WHEN {_MAIN} = :conversation THEN {_MAIN} ELSE '{OTHER}' END"
_SUMS = "coalesce(sum(cost_usd), 0.0) AS usd, sum(input_tokens + output_tokens) AS tokens"
_SPENT = f"""
    SELECT agent, {_OWN_CONVERSATION} AS of_conversation,
        CASE WHEN user_id = :user_id THEN user_id ELSE '{OTHER}' END AS of_user,
        CASE WHEN job IN (:job, '') THEN job ELSE '{OTHER}' END AS of_job,
        count(*) AS turns, sum(worked_s) AS worked_s, {_SUMS}
    FROM turns WHERE started_at >= :first AND started_at < :until AND id != :without
    GROUP BY agent, of_conversation, of_user, of_job
"""  # noqa: S608 - our own names
_EXPENSES = f"""
    SELECT purpose, {_OWN_CONVERSATION} AS of_conversation, {_SUMS}
    FROM expenses WHERE at >= :first AND at < :until GROUP BY purpose, of_conversation
"""  # noqa: S608 - our own names
_GRANTED = f"""
    SELECT {columns_of(ApprovalRow, "approvals")} FROM approvals JOIN turns ON turns.id = approvals.turn_id
    WHERE approvals.conversation = ? AND turns.agent = ? AND turns.session_id = ?
        AND approvals.state = 'allowed' AND approvals.for_session = 1
"""  # noqa: S608 - our own names
_LAST_OFFER = f"""
    SELECT {columns_of(OutboxRow)} FROM outbox
    WHERE turn_id = ? AND kind = 'post' AND state = 'posted' AND EXISTS (
        SELECT 1 FROM json_each(outbox.payload, '$.message.buttons') AS button
        WHERE json_extract(button.value, '$.action') = ?
    )
    ORDER BY seq DESC LIMIT 1
"""  # noqa: S608 - our own names
_UNREVIEWED = """
    SELECT turns.conversation, max(turns.finished_at) AS ended FROM turns
    LEFT JOIN memory_reviews ON memory_reviews.conversation = turns.conversation
    WHERE turns.started_at >= ? AND turns.state = 'done' AND turns.finished_at IS NOT NULL
        AND turns.finished_at > coalesce(memory_reviews.up_to, '')
    GROUP BY turns.conversation ORDER BY ended
"""


class Messages(Rows[MessageRow]):
    """People's messages."""

    def is_crowded(self, user: PersonRef, most: int) -> bool:
        """Whether the user has as many messages waiting, to start or to continue, as are allowed
        (``agent.queuePerUser``, 0 = any number)."""
        return most > 0 and int(self.raw.execute(_WAITING_OF, (user,)).fetchone()[0]) >= most


class Turns(Rows[TurnRow]):
    """Turns, in the order they were created."""

    def interrupted_since(self, moment: str) -> list[TurnRow]:
        """The turns that were interrupted since ``moment`` (ISO 8601), oldest first."""
        return [TurnRow(**row) for row in self.raw.execute(_INTERRUPTED_SINCE, (moment,))]

    def limited_until(self, agent: str) -> str:
        """When the usage limit ends for which the agent's last turn was handed over; "" if that is unknown or none was,
        or if the agent has worked since."""
        found = self.raw.execute(_LIMITED, (agent,)).fetchone()
        return str(found["not_before"]) if found is not None and found["state"] == "stopped" else ""

    def newest_of_each(self) -> list[TurnRow]:
        """The newest turn of each conversation, newest first."""
        return [TurnRow(**row) for row in self.raw.execute(_NEWEST_OF_EACH)]

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
        values = {"first": first, "until": until, "conversation": account.conversation}
        mine = {"user_id": account.user, "job": account.job, "without": without}
        turns = [
            Spent(
                row["agent"],
                BudgetAccount(row["of_user"], row["of_conversation"], row["of_job"]),
                UsageTotal(
                    float(row["usd"]), int(row["tokens"]), int(row["turns"]), float(row["worked_s"]) / 60
                ),
            )
            for row in self.raw.execute(_SPENT, values | mine)
        ]
        return turns + [
            Spent(
                row["purpose"],
                BudgetAccount(NO_PERSON, row["of_conversation"], row["purpose"]),
                UsageTotal(float(row["usd"]), int(row["tokens"])),
            )
            for row in self.raw.execute(_EXPENSES, values)
        ]


class Operations(Rows[OutboxRow]):
    """Operations for the chat, committed before they are sent, in the order they were committed."""

    def last_offer(self, turn_id: str, action: str) -> OutboxRow | None:
        """The newest post about a turn that has a button for ``action`` and is in the chat."""
        found = self.raw.execute(_LAST_OFFER, (turn_id, action)).fetchone()
        return OutboxRow(**found) if found is not None else None


class Approvals(Rows[ApprovalRow]):
    """Questions to people; each is decided once. Commands of the same moment run in the order they were given."""

    def granted(self, conversation: str, agent: str, session_id: str) -> list[ApprovalRow]:
        """Grants for a whole session of an agent."""
        return [ApprovalRow(**row) for row in self.raw.execute(_GRANTED, (conversation, agent, session_id))]

    def decide(
        self, approval_id: str, state: ApprovalState, decided_by: PersonRef, reason: str = "", *, at: str
    ) -> bool:
        """Decide a pending question. False, and no change, if it was decided before or is unknown."""
        to = {"state": state, "decided_by": decided_by, "decided_at": at, "reason": reason}
        return self.change(to, id=approval_id, state="pending") == 1


class Deferred(Rows[DeferredRow]):
    """Commands that take a moment, kept until they are answered."""

    def go_on(self, command_id: str, argument: str) -> None:
        """A step of a long one is done: store the next one, and reset its attempts."""
        self.change({"argument": argument, "attempts": 0}, id=command_id)

    def begin(self, command_id: str) -> None:
        """Count an attempt."""
        self.raw.execute("UPDATE errands SET attempts = attempts + 1 WHERE id = ?", (command_id,))


class Memories(Rows[MemoryChangeRow]):
    """Changes of the memory. They are never deleted; there are few."""

    def unreviewed(self, since: str) -> list[tuple[str, str]]:
        """(conversation, end of its last done turn) of conversations whose last done turn is unreviewed, for
        turns that started after ``since``; the oldest end first."""
        return [(str(row[0]), str(row[1])) for row in self.raw.execute(_UNREVIEWED, (since,))]


class Sessions(Struct, frozen=True):
    """The sessions that agents resume, one per conversation and agent.

    Two tables lie behind it. ``sessions`` is the WhatsApp era's: one Claude session per channel. It still
    stores channel-wide conversations with ``claude``, so that they survive the migration; and it follows the
    newest Claude session of the channel's threads, unless that is in a race, so that switching ``agent.scope`` to
    ``channel`` continues the latest one. Everything else is in ``threads``.
    """

    threads: Rows[SessionRow]
    channels: Rows[ChannelSessionRow]

    def get(self, conversation: str, agent: str) -> SessionRow | None:
        """The session this agent has in this conversation, or None."""
        if agent != CHANNEL_AGENT or not conversation.endswith(":"):
            return self.threads.get(conversation, agent=agent)
        channel = channel_of(conversation)
        found = self.channels.get(channel)
        if found is None:
            return None
        return SessionRow(
            conversation=conversation,
            channel_id=channel,
            agent=agent,
            session_id=found.session_id,
            updated_at=found.updated_at,
            total_cost_usd=found.total_cost_usd,
        )

    def holding(self, session_id: str) -> SessionRow | None:
        """The conversation that continues the session, or None."""
        return next(iter(self.threads.find(session_id=session_id)), None)

    def put(self, row: SessionRow) -> None:
        """Keep the session, replacing an earlier one."""
        if row.agent == CHANNEL_AGENT and not race_in(row.conversation):
            channel = ChannelSessionRow(row.channel_id, row.session_id, row.updated_at, row.total_cost_usd)
            self.channels.add(channel, known="replace")
        if row.agent != CHANNEL_AGENT or not row.conversation.endswith(":"):
            self.threads.add(row, known="replace")

    def forget(self, conversation: str) -> None:
        """Drop every agent's session of the conversation: its next message starts a new one."""
        mine = self.get(conversation, CHANNEL_AGENT)
        if mine is not None:
            self.channels.delete(channel_id=channel_of(conversation), session_id=mine.session_id)
        self.threads.delete(conversation=conversation)
