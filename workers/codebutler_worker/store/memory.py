"""Repositories of what is remembered: changes of ``memory.md``, where its lines come from, and facts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from sqlalchemy import Select, TextClause, select, text
from sqlalchemy.dialects.sqlite import Insert, insert

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, add, by, change, every, given, one, remove, values
from codebutler_worker.store.rows import ChangeState, FactRow, MemoryChangeRow, MemoryLineRow


class Memories(Repository):
    """Changes are kept for as long as the store is; there are few."""

    def add(self, row: MemoryChangeRow) -> None:
        """Keep a new change."""
        add(self._connection, tables.memory_changes, row)

    def get(self, change_id: str) -> MemoryChangeRow | None:
        """The change of that id."""
        return one(self._connection, by(tables.memory_changes, "id"), MemoryChangeRow, id=change_id)

    def newest(self, limit: int) -> list[MemoryChangeRow]:
        """The newest changes, newest first."""
        return every(self._connection, _newest(), MemoryChangeRow, limit=limit)

    def set_state(self, change_id: str, state: ChangeState, changes: str | None = None) -> None:
        """Move a change on; ``changes`` are those of it that came about, if not all did."""
        to = {"state": state} if changes is None else {"state": state, "changes": changes}
        change(self._connection, tables.memory_changes, to, id=change_id)

    def lines(self) -> dict[str, MemoryLineRow]:
        """Where facts come from, by the fact."""
        found = every(self._connection, select(tables.memory_lines), MemoryLineRow)
        return {row.line: row for row in found}

    def put_line(self, row: MemoryLineRow) -> None:
        """Tell where a fact comes from, in place of what was told before."""
        self._connection.execute(_put(tables.memory_lines, "line"), values(row))

    def forget_lines(self, lines: Iterable[str]) -> None:
        """These facts are no more."""
        for line in lines:
            remove(self._connection, tables.memory_lines, line=line)

    def unreviewed(self, since: str) -> list[tuple[str, str]]:
        """(conversation, end of its last turn that was done) where nobody has looked at that turn, of turns that began
        after ``since``; the oldest end first."""
        found = self._connection.execute(_unreviewed(), {"since": since})
        return [(str(row[0]), str(row[1])) for row in found]

    def reviewed_up_to(self, conversation: str) -> str:
        """The end of the last turn that was looked at; "" if none was."""
        query = by(tables.memory_reviews, "conversation")
        row = self._connection.execute(query, {"given_conversation": conversation}).first()
        return "" if row is None else str(row[1])

    def review(self, conversation: str, up_to: str) -> None:
        """The conversation was gone over, up to the turn that ended then."""
        self._connection.execute(
            _put(tables.memory_reviews, "conversation"), {"conversation": conversation, "up_to": up_to}
        )


class Facts(Repository):
    """Facts by scope and key."""

    def put(self, row: FactRow) -> None:
        """Keep a fact, in place of an earlier one of its key."""
        self._connection.execute(_put(tables.facts, "scope", "key"), values(row))

    def get(self, scope: str, key: str) -> FactRow | None:
        """The fact of that key."""
        return one(self._connection, by(tables.facts, "scope", "key"), FactRow, scope=scope, key=key)

    def of(self, scope: str) -> list[FactRow]:
        """All facts of a scope, by key."""
        return every(self._connection, _of_scope(), FactRow, scope=scope)

    def forget(self, scope: str, key: str) -> None:
        """Drop a fact."""
        remove(self._connection, tables.facts, scope=scope, key=key)


@cache
def _newest() -> Select[Any]:
    return select(tables.memory_changes).order_by(tables.memory_changes.c.seq.desc()).limit(given("limit"))


@cache
def _of_scope() -> Select[Any]:
    return select(tables.facts).where(tables.facts.c.scope == given("scope")).order_by(tables.facts.c.key)


@cache
def _unreviewed() -> TextClause:
    return text("""
        SELECT turns.conversation, max(turns.finished_at) AS ended FROM turns
        LEFT JOIN memory_reviews ON memory_reviews.conversation = turns.conversation
        WHERE turns.started_at >= :since AND turns.state = 'done' AND turns.finished_at IS NOT NULL
            AND turns.finished_at > coalesce(memory_reviews.up_to, '')
        GROUP BY turns.conversation ORDER BY ended
    """)


@cache
def _put(table: Any, *keys: str) -> Insert:
    statement = insert(table)
    others = {name: statement.excluded[name] for name in table.columns.keys() if name not in keys}  # noqa: SIM118 - a collection of columns
    return statement.on_conflict_do_update(index_elements=list(keys), set_=others)
