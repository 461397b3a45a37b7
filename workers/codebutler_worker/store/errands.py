"""Repository of errands: commands that are under way."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from codebutler_worker.store import tables
from codebutler_worker.store.mapping import every, values
from codebutler_worker.store.rows import ErrandRow


class Errands:
    """Kept from when they are asked for until they are answered."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, row: ErrandRow) -> None:
        """Keep a new errand."""
        self._connection.execute(tables.errands.insert().values(values(row)))

    def all(self) -> list[ErrandRow]:
        """Every errand that is not answered yet, oldest first."""
        columns = tables.errands.c
        query = select(tables.errands).order_by(columns.created_at, columns.id)
        return every(self._connection, query, ErrandRow)

    def begin(self, errand_id: str) -> None:
        """Count an attempt."""
        columns = tables.errands.c
        mine = update(tables.errands).where(columns.id == errand_id)
        self._connection.execute(mine.values(attempts=columns.attempts + 1))

    def done(self, errand_id: str) -> None:
        """Forget an errand: it is answered."""
        self._connection.execute(delete(tables.errands).where(tables.errands.c.id == errand_id))
