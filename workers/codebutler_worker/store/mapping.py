"""Maps rows of a table to their dataclasses, whose slots carry the columns' names.

SQLAlchemy writes the statements and sqlite3 runs them. A statement is built and compiled once, with values as
parameters: building, compiling and running it with SQLAlchemy each time would touch, and so copy, most of the
pages that a worker shares with the fork server.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from sqlalchemy import BindParameter, Select, Table, Update, bindparam, delete, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.sql.elements import ClauseElement

Row = TypeVar("Row")


class Statement(NamedTuple):
    """A statement in SQLite's dialect, and its literal values."""

    sql: str
    constants: Mapping[str, object]


class Repository:
    """The rows of one kind, within one transaction."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def _run(
        self,
        statement: ClauseElement,
        values: Mapping[str, object] = MappingProxyType({}),
        /,
        **where: object,
    ) -> sqlite3.Cursor:
        """Run one of SQLAlchemy's statements; its rows can be read by column name. ``where``: what is `given`.

        Raises sqlite3.Error: IntegrityError for a key that already exists.
        """
        values = {**values, **{f"given_{name}": value for name, value in where.items()}}
        sql, constants = _compiled(statement, tuple(values))
        cursor = self._raw.cursor()
        cursor.row_factory = sqlite3.Row
        return cursor.execute(sql, {**constants, **values})

    def _one(self, query: Select[Any], kind: type[Row], **where: object) -> Row | None:
        """The first row the query finds for the given values."""
        found = self._run(query, **where).fetchone()
        return None if found is None else kind(**{name: found[name] for name in _names(kind)})

    def _all(self, query: Select[Any], kind: type[Row], **where: object) -> list[Row]:
        """All rows the query finds for the given values, in its order."""
        names = _names(kind)
        return [kind(**{name: row[name] for name in names}) for row in self._run(query, **where)]

    def _upsert(self, table: Table, row: object) -> None:
        """Insert a row, or replace all but its key."""
        self._run(_upsertion(table), column_values(row))

    def _update(self, table: Table, to: Mapping[str, object], **where: object) -> int:
        """Set columns where others have the given values; returns the number of rows."""
        return self._run(_changing(table, *where), to, **where).rowcount

    def _delete(self, table: Table, **where: object) -> int:
        return self._run(_deletion(table, *where), **where).rowcount


class RowTable(Repository, Generic[Row]):
    """A table that gets rows of one kind."""

    table: ClassVar[Table]
    generated: ClassVar[str] = ""
    """The column that the database fills."""

    def add(self, row: Row) -> None:
        """Add a row. Raises sqlite3.IntegrityError if its key already exists."""
        self._run(_insertion(self.table), column_values(row, without=self.generated))


class KeyedTable(RowTable[Row]):
    """The same, of ``kind``, found by one column."""

    kind: ClassVar[type[Any]]
    key: ClassVar[str] = "id"

    def get(self, key: str | None) -> Row | None:
        """The row, or None."""
        found: Row | None = self._one(matching(self.table, self.key), self.kind, **{self.key: key})
        return found


def given(name: str) -> BindParameter[Any]:
    """The placeholder of a value in a compiled statement."""
    # Not the bare name: in an UPDATE a column's name stands for the new value.
    return bindparam(f"given_{name}", required=False)


@cache
def matching(table: Table, *names: str) -> Select[Any]:
    """The rows in which these columns have the given values."""
    return select(table).where(*(table.c[name] == given(name) for name in names))


def column_values(row: object, *, without: str = "") -> dict[str, Any]:
    """A dataclass as column values, less the column the database fills."""
    return {name: getattr(row, name) for name in _names(type(row)) if name != without}


def _names(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind.__slots__
    return names


@cache
def _insertion(table: Table) -> Any:
    return table.insert().inline()  # nobody asks for the key it gets


@cache
def _upsertion(table: Table) -> Insert:
    statement = insert(table)
    new = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)


@cache
def _changing(table: Table, *names: str) -> Update:
    return update(table).where(*(table.c[name] == given(name) for name in names))


@cache
def _deletion(table: Table, *names: str) -> Any:
    return delete(table).where(*(table.c[name] == given(name) for name in names))


@lru_cache(maxsize=256)
def _compiled(statement: ClauseElement, names: tuple[str, ...]) -> Statement:
    """``names``: the columns of an INSERT or an UPDATE, and the given values."""
    compiled = statement.compile(
        dialect=sqlite.dialect(paramstyle="named"),
        column_keys=names,
        compile_kwargs={"render_postcompile": True},
    )
    # SQLite refuses a statement with a missing value.
    constants = {name: value for name, value in compiled.params.items() if value is not None}
    return Statement(str(compiled), constants)
