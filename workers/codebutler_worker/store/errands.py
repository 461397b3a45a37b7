"""Repository of errands: commands that are under way."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Select, Update, select, update

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import Repository, add, by, change, every, given, one, remove
from codebutler_worker.store.rows import ErrandRow


class Errands(Repository):
    """Kept from when they are asked for until they are answered."""

    def add(self, row: ErrandRow) -> None:
        """Keep a new errand."""
        add(self._connection, tables.errands, row)

    def all(self) -> list[ErrandRow]:
        """Every errand that is not answered yet, oldest first."""
        return every(self._connection, _all(), ErrandRow)

    def get(self, errand_id: str) -> ErrandRow | None:
        """The errand, or None: it is answered, or nobody wants it any more."""
        return one(self._connection, by(tables.errands, "id"), ErrandRow, id=errand_id)

    def go_on(self, errand_id: str, argument: str) -> None:
        """A step of a long one is done: what comes next, tried anew."""
        change(self._connection, tables.errands, {"argument": argument, "attempts": 0}, id=errand_id)

    def begin(self, errand_id: str) -> None:
        """Count an attempt."""
        self._connection.execute(_begin(), {"given_id": errand_id})

    def done(self, errand_id: str) -> None:
        """Forget an errand: it is answered, or withdrawn."""
        remove(self._connection, tables.errands, id=errand_id)


@cache
def _all() -> Select[Any]:
    columns = tables.errands.c
    return select(tables.errands).order_by(columns.created_at, columns.id)


@cache
def _begin() -> Update:
    columns = tables.errands.c
    return update(tables.errands).where(columns.id == given("id")).values(attempts=columns.attempts + 1)
