"""Repository of deferred commands: what is to be answered in a moment."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Select, Update, select, update

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, add, by, change, every, given, one, remove
from codebutler_worker.store.rows import DeferredRow


class Deferred(Repository):
    """Kept from when they are asked for until they are answered."""

    def add(self, row: DeferredRow) -> None:
        """Keep a new command."""
        add(self._connection, tables.errands, row)

    def all(self) -> list[DeferredRow]:
        """Every command that is not answered yet, oldest first."""
        return every(self._connection, _all(), DeferredRow)

    def get(self, command_id: str) -> DeferredRow | None:
        """The command, or None: it is answered, or nobody wants it any more."""
        return one(self._connection, by(tables.errands, "id"), DeferredRow, id=command_id)

    def go_on(self, command_id: str, argument: str) -> None:
        """A step of a long one is done: what comes next, tried anew."""
        change(self._connection, tables.errands, {"argument": argument, "attempts": 0}, id=command_id)

    def begin(self, command_id: str) -> None:
        """Count an attempt."""
        self._connection.execute(_begin(), {"given_id": command_id})

    def done(self, command_id: str) -> None:
        """Forget a command: it is answered, or withdrawn."""
        remove(self._connection, tables.errands, id=command_id)


@cache
def _all() -> Select[Any]:
    columns = tables.errands.c
    return select(tables.errands).order_by(columns.created_at, columns.id)


@cache
def _begin() -> Update:
    columns = tables.errands.c
    return update(tables.errands).where(columns.id == given("id")).values(attempts=columns.attempts + 1)
