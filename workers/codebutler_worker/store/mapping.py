"""Between a row of a table and its dataclass: the fields carry the columns' names."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, TypeVar

from sqlalchemy import Connection, Select

Row = TypeVar("Row")


def one(connection: Connection, query: Select[Any], kind: type[Row]) -> Row | None:
    """The first row the query finds, as ``kind``."""
    found = connection.execute(query.limit(1)).mappings().first()
    return None if found is None else kind(**_fields(kind, dict(found)))


def every(connection: Connection, query: Select[Any], kind: type[Row]) -> list[Row]:
    """All rows the query finds, in its order."""
    return [kind(**_fields(kind, dict(found))) for found in connection.execute(query).mappings()]


def values(row: Any, *, without: str = "") -> dict[str, Any]:
    """A dataclass as column values, less the column the database fills."""
    columns = asdict(row)
    columns.pop(without, None)
    return columns


def _fields(kind: type[Any], found: dict[str, Any]) -> dict[str, Any]:
    return {field.name: found[field.name] for field in fields(kind)}
