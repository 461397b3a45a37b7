"""Rows of a table as dataclasses, whose slots carry the columns' names; the first slot is the key. Plain statements
for sqlite3: SQLAlchemy would compile each one, which touches most pages that a worker shares with the fork server."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from sqlalchemy import Table

Row = TypeVar("Row")
UNLESS_KNOWN = "ON CONFLICT DO NOTHING"


class Rows(Generic[Row]):
    """The rows of one table, within one transaction.

    ``where`` gives columns their values; a tuple stands for any of its values. ``order`` (SQL) is that of the rows
    found, by default that in which they were added. A column that the table does not have is a KeyError.
    """

    def __init__(self, raw: sqlite3.Connection, table: Table, kind: type[Row], order: str = "rowid") -> None:
        self._raw = raw
        self._table = table
        self._kind: Any = kind
        self._order = order

    def run(self, sql: str, values: Mapping[str, object] | Sequence[object] = ()) -> sqlite3.Cursor:
        """Run a statement; its rows can be read by column name. Raises sqlite3.Error."""
        cursor = self._raw.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(sql, values)

    def find(self, order: str = "", /, **where: object) -> list[Row]:
        """All rows with these values; ``order`` (SQL, perhaps with a limit) replaces the table's."""
        condition, values = self._condition(where)
        sql = (
            f"SELECT {columns_of(self._kind)} FROM {self._table} {condition} ORDER BY {order or self._order}"  # noqa: S608 - our own names
        )
        return [self._kind(**row) for row in self.run(sql, values)]

    def newest(self, limit: int, /, **where: object) -> list[Row]:
        """The rows with these values that were added last, newest first."""
        return self.find(f"rowid DESC LIMIT {limit}", **where)

    def get(self, key: str | None, /, **where: object) -> Row | None:
        """The row with that key and these values, None if there is none."""
        found = self.find(**{self._kind.__slots__[0]: key}, **where)
        return found[0] if found else None

    def add(self, row: Row, otherwise: str = "") -> bool:
        """Add a row; returns whether it did. Raises sqlite3.IntegrityError if the key already exists, unless an ON
        CONFLICT clause says what to do ``otherwise``."""
        values = [getattr(row, name) for name in self._kind.__slots__]
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {self._table} ({columns_of(self._kind)}) VALUES ({marks}) {otherwise}"  # noqa: S608 - our own names
        return self.run(sql, values).rowcount > 0

    def put(self, row: Row) -> None:
        """Add a row, or replace all but its key."""
        key = [column.name for column in self._table.primary_key]
        new = ", ".join(f'"{name}" = excluded."{name}"' for name in self._kind.__slots__ if name not in key)
        self.add(row, f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {new}")

    def update(self, key: str, /, **fields: object) -> None:
        """Set fields of the row with that key. Raises KeyError if there is none."""
        if not self.change(fields, **{self._kind.__slots__[0]: key}):
            raise KeyError(key)

    def change(self, to: Mapping[str, object], /, **where: object) -> int:
        """Set fields of all rows with these values; returns the number of rows."""
        condition, values = self._condition(where)
        new = ", ".join(f'"{self._table.c[name].name}" = ?' for name in to)
        return self.run(f"UPDATE {self._table} SET {new} {condition}", [*to.values(), *values]).rowcount  # noqa: S608 - our own names

    def delete(self, **where: object) -> int:
        """Delete all rows with these values; returns their number."""
        condition, values = self._condition(where)
        return self.run(f"DELETE FROM {self._table} {condition}", values).rowcount  # noqa: S608 - our own names

    def _condition(self, where: Mapping[str, object]) -> tuple[str, list[object]]:
        terms: list[str] = []
        values: list[object] = []
        for name, value in where.items():
            several = value if isinstance(value, tuple) else (value,)
            terms.append(f'"{self._table.c[name].name}" IN ({", ".join("?" * len(several))})')
            values += several
        return f"WHERE {' AND '.join(terms)}" if terms else "", values


@cache
def columns_of(kind: Any, table: str = "") -> str:
    """The columns of a row, perhaps with their table, for a statement."""
    return ", ".join(f'{table}."{name}"' if table else f'"{name}"' for name in kind.__slots__)
