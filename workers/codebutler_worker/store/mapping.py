"""Between a row of a table and its dataclass, which has slots: they carry the columns' names.

Statements are built once and kept, with values as parameters. Building one walks over most of SQLAlchemy, which
copies pages that a worker would otherwise share with the fork server: 1.5 MB of them for its first event.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import BindParameter, Connection, Select, Table, Update, bindparam, delete, select, update
from sqlalchemy.dialects.sqlite import Insert, insert

Row = TypeVar("Row")


class Repository:
    """The rows of one kind, within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def _one(self, query: Select[Any], kind: type[Row], **values: object) -> Row | None:
        """The first row the query finds for the given values."""
        found = self._connection.execute(query, _given(values)).mappings().first()
        return None if found is None else kind(**{name: found[name] for name in _names(kind)})

    def _all(self, query: Select[Any], kind: type[Row], **values: object) -> list[Row]:
        """All rows the query finds for the given values, in its order."""
        names = _names(kind)
        found = self._connection.execute(query, _given(values)).mappings()
        return [kind(**{name: row[name] for name in names}) for row in found]

    def _insert(self, table: Table, row: object, *, without: str = "") -> None:
        """Raises IntegrityError if the key is there already. ``without``: the column that the database fills."""
        self._connection.execute(_insertion(table), column_values(row, without=without))

    def _upsert(self, table: Table, row: object) -> None:
        """Insert a row, or replace all but its key."""
        self._connection.execute(_upsertion(table), column_values(row))

    def _update(self, table: Table, to: Mapping[str, object], **where: object) -> int:
        """Set columns where others are as given; returns how many rows that were."""
        return self._connection.execute(_changing(table, *where), {**to, **_given(where)}).rowcount

    def _delete(self, table: Table, **where: object) -> int:
        return self._connection.execute(_deletion(table, *where), _given(where)).rowcount


def given(name: str) -> BindParameter[Any]:
    """The place of a value in a statement that is kept."""
    # Not the bare name: that of a column stands for the new value in an UPDATE.
    return bindparam(f"given_{name}")


@cache
def matching(table: Table, *names: str) -> Select[Any]:
    """The rows in which these columns are as given."""
    return select(table).where(*(table.c[name] == given(name) for name in names))


def column_values(row: object, *, without: str = "") -> dict[str, Any]:
    """A dataclass as column values, less the column the database fills."""
    return {name: getattr(row, name) for name in _names(type(row)) if name != without}


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {f"given_{name}": value for name, value in values.items()}


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
