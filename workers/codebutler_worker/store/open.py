"""Opening the store, which brings an older or WhatsApp-era file up to date."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from codebutler import sqlitefile
from codebutler.clock import Clock
from codebutler_worker.store import tables
from codebutler_worker.store.migrate import migrate_store
from codebutler_worker.store.state_dir import STATE_DIR, check_state_dir, prepare_state_dir
from codebutler_worker.store.unit_of_work import Store


def open_store(path: Path, clock: Clock) -> Store:
    """Open ``<repo>/.codebutler/store.db``, creating or (after a backup) migrating it first.

    Prepares the state directory too. Blocks; call it before serving. Raises StoreTooNewError for a
    newer CodeButler's file and StoreError for one that is damaged, foreign, lost, locked or not writable.
    """
    if path.parent.name == STATE_DIR:
        prepare_state_dir(path.parent.parent)
    check_state_dir(path.parent)
    if not sqlitefile.exists(path):
        sqlitefile.create(path, schema())
    raw: sqlite3.Connection | None = None
    try:
        raw = sqlitefile.attach(path)
        if sqlitefile.examine(raw, path).revision != tables.HEAD:
            raw.close()
            migrate_store(path, clock=clock)
            raw = sqlitefile.attach(path)
        sqlitefile.become_writer(raw)
        path.chmod(0o600)
        return Store(path, raw, clock)
    except BaseException as error:
        if raw is not None:
            raw.close()
        if isinstance(error, sqlite3.Error | OSError):
            raise sqlitefile.store_error(path, error) from error
        raise


def schema() -> list[str]:
    """The statements that make a store at HEAD."""
    dialect = sqlite.dialect()
    statements: list[str] = []
    for table in [*tables.metadata.sorted_tables, tables.version]:
        statements.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        statements.extend(str(CreateIndex(index).compile(dialect=dialect)) for index in indexes)
    # HEAD is a constant of ours
    return [*statements, f"INSERT INTO alembic_version VALUES ('{tables.HEAD}')"]  # noqa: S608
