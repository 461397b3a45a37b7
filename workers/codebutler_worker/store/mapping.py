"""Between a row of a table and its dataclass, which has slots: they carry the columns' names.

Statements are built once and kept, with values as parameters. Building one walks over most of SQLAlchemy, which
copies pages that a worker would otherwise share with the fork server: 1.5 MB of them for its first event.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import BindParameter, Connection, Select, Table, Update, bindparam, delete, select, update

Row = TypeVar("Row")


class Repository:
    """The rows of one kind, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


def given(name: str) -> BindParameter[Any]:
    """The place of a value in a statement that is kept."""
    # Not the bare name: that of a column stands for the new value in an UPDATE.
    return bindparam(f"given_{name}")


def matching(table: Table, *names: str) -> Select[Any]:
    """The rows in which these columns are as given; to be ordered or joined, and kept."""
    return select(table).where(*(table.c[name] == given(name) for name in names))


@cache
def by(table: Table, *names: str) -> Select[Any]:
    """``matching``, kept."""
    return matching(table, *names)


def one(connection: Connection, query: Select[Any], kind: type[Row], **values: object) -> Row | None:
    """The first row the query finds for the given values, as ``kind``."""
    found = connection.execute(query, _given(values)).mappings().first()
    return None if found is None else kind(**{name: found[name] for name in _names(kind)})


def every(connection: Connection, query: Select[Any], kind: type[Row], **values: object) -> list[Row]:
    """All rows the query finds for the given values, in its order."""
    names = _names(kind)
    found = connection.execute(query, _given(values)).mappings()
    return [kind(**{name: row[name] for name in names}) for row in found]


def add(connection: Connection, table: Table, row: Any, *, without: str = "") -> None:
    """Insert a dataclass. Raises IntegrityError if its key is there already."""
    connection.execute(_insert(table), values(row, without=without))


def change(connection: Connection, table: Table, to: Mapping[str, object], **where: object) -> int:
    """Set columns where others are as given; returns how many rows that were."""
    statement = _update(table, *where)
    return connection.execute(statement, {**to, **_given(where)}).rowcount


def remove(connection: Connection, table: Table, **where: object) -> None:
    """Delete the rows in which columns are as given."""
    connection.execute(_delete(table, *where), _given(where))


def values(row: Any, *, without: str = "") -> dict[str, Any]:
    """A dataclass as column values, less the column the database fills."""
    return {name: getattr(row, name) for name in _names(type(row)) if name != without}


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {f"given_{name}": value for name, value in values.items()}


def _names(kind: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = kind.__slots__
    return names


@cache
def _insert(table: Table) -> Any:
    return table.insert().inline()  # nobody asks for the key it gets


@cache
def _update(table: Table, *names: str) -> Update:
    return update(table).where(*(table.c[name] == given(name) for name in names))


@cache
def _delete(table: Table, *names: str) -> Any:
    return delete(table).where(*(table.c[name] == given(name) for name in names))
