"""Opening a database file of ours: created if it never was, brought up to date if it is older."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from codebutler.platform import sqlitefile
from codebutler.platform.sqlitefile import Contents


@dataclass(frozen=True, slots=True)
class Shape:
    """What a file is at its newest revision, ``head``: the columns of its tables, and the statements that make it."""

    head: str
    columns: Mapping[str, frozenset[str]]
    statements: Callable[[], Iterable[str]]


def open_at_head(path: Path, shape: Shape, upgrade: Callable[[Contents], None]) -> sqlite3.Connection:
    """The file's one connection, which writes. ``upgrade`` brings an older file, of which it gets the contents, to
    ``shape``, after a backup, or raises StoreError for one that it does not know; nobody has the file open then.

    Raises what ``upgrade`` does, StoreDamagedError for a file that is damaged or lost, and StoreError for one that is
    locked or not writable.
    """
    if not sqlitefile.exists(path):
        sqlitefile.create(path, shape.statements())
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlitefile.attach(path)
        found = sqlitefile.examine(connection, path)
        if found.revision != shape.head:
            connection.close()
            upgrade(found)
            connection = sqlitefile.attach(path)
            found = sqlitefile.examine(connection, path)
        sqlitefile.require(path, found, shape.columns)
        sqlitefile.become_writer(connection)
        path.chmod(0o600)
        sqlitefile.hide(path)
        return connection
    except BaseException as error:  # whatever it was, nothing stays open; it is raised on
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error | OSError):
            raise sqlitefile.store_error(path, error) from error
        raise
