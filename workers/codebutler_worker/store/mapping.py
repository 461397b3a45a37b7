"""Rows of a table as dataclasses, whose fields carry the columns' names; the first field is the key. Plain statements
for sqlite3: SQLAlchemy would compile each one, which touches most pages that a worker shares with the fork server."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sqlalchemy import Table

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = TypeVar("Row", bound="DataclassInstance")
UNLESS_KNOWN = "ON CONFLICT DO NOTHING"


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

    def run(self, sql: str, values: Mapping[str, object] | Sequence[object] = ()) -> sqlite3.Cursor:
        """Run a statement; its rows can be read by column name. Raises sqlite3.Error."""
        cursor = self.raw.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(sql, values)

    def find(self, order: str = "", /, **where: object) -> list[Row]:
        """All rows with these values; ``order`` (SQL, perhaps with a limit) replaces the table's."""
        condition, values = self._condition(where)
        sql = f"SELECT {columns_of(self.kind)} FROM {self.table} {condition} ORDER BY {order or self.order}"  # noqa: S608 - our own names
        return [self.kind(**row) for row in self.run(sql, values)]

    def newest(self, limit: int, /, **where: object) -> list[Row]:
        """The rows with these values that were added last, newest first."""
        return self.find(f"rowid DESC LIMIT {limit}", **where)

    def get(self, key: str | None, /, **where: object) -> Row | None:
        """The row with that key and these values, None if there is none."""
        found = self.find(**{next(iter(self.kind.__dataclass_fields__)): key}, **where)
        return found[0] if found else None

    def add(self, row: Row, otherwise: str = "") -> bool:
        """Add a row; returns whether it did. Raises sqlite3.IntegrityError if the key already exists, unless an ON
        CONFLICT clause says what to do ``otherwise``."""
        values = [getattr(row, name) for name in self.kind.__dataclass_fields__]
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {self.table} ({columns_of(self.kind)}) VALUES ({marks}) {otherwise}"  # noqa: S608 - our own names
        return self.run(sql, values).rowcount > 0

    def put(self, row: Row) -> None:
        """Add a row, or replace all but its key."""
        key = [column.name for column in self.table.primary_key]
        new = ", ".join(
            f'"{name}" = excluded."{name}"' for name in self.kind.__dataclass_fields__ if name not in key
        )
        self.add(row, f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {new}")

    def update(self, key: str, /, **fields: object) -> None:
        """Set fields of the row with that key. Raises KeyError if there is none."""
        if not self.change(fields, **{next(iter(self.kind.__dataclass_fields__)): key}):
            raise KeyError(key)

    def change(self, to: Mapping[str, object], /, **where: object) -> int:
        """Set fields of all rows with these values; returns the number of rows."""
        condition, values = self._condition(where)
        new = ", ".join(f'"{self.table.c[name].name}" = ?' for name in to)
        return self.run(f"UPDATE {self.table} SET {new} {condition}", [*to.values(), *values]).rowcount  # noqa: S608 - our own names

    def delete(self, **where: object) -> int:
        """Delete all rows with these values; returns their number."""
        condition, values = self._condition(where)
        return self.run(f"DELETE FROM {self.table} {condition}", values).rowcount  # noqa: S608 - our own names

    def _condition(self, where: Mapping[str, object]) -> tuple[str, list[object]]:
        terms: list[str] = []
        values: list[object] = []
        for name, value in where.items():
            several = value if isinstance(value, tuple) else (value,)
            terms.append(f'"{self.table.c[name].name}" IN ({", ".join("?" * len(several))})')
            values += several
        return f"WHERE {' AND '.join(terms)}" if terms else "", values


@cache
def columns_of(kind: Any, table: str = "") -> str:
    """The columns of a row, perhaps with their table, for a statement."""
    return ", ".join(f'{table}."{name}"' if table else f'"{name}"' for name in kind.__dataclass_fields__)
