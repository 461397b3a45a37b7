"""Opening the store, which brings an older or WhatsApp-era file up to date."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from codebutler.domain.clock import Clock
from codebutler.platform import sqlitefile
from codebutler.platform.backups import Backups, open_or_restore
from codebutler.platform.sqlitefile import Shape, open_at_head
from codebutler_worker.store import tables
from codebutler_worker.store.migrate import upgrade_store, writer_lock
from codebutler_worker.store.state_dir import STATE_DIR, check_state_dir, prepare_state_dir
from codebutler_worker.store.unit_of_work import Store, store_thread


async def open_on_own_thread(path: Path, clock: Clock, backups: Backups | None, wait_s: float) -> Store:
    """``open_store`` on the thread that the store keeps.

    What SQLite allocates then lies together, not in the gaps of the memory that workers share.
    """
    thread = store_thread()
    try:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(thread, open_store, path, clock, backups, wait_s, thread)
    except BaseException:
        thread.shutdown(wait=False)
        raise


def open_store(
    path: Path,
    clock: Clock,
    backups: Backups | None = None,
    wait_s: float = 0.0,
    thread: ThreadPoolExecutor | None = None,
) -> Store:
    """Open ``<repo>/.codebutler/store.db``, creating or (after a backup) migrating it first.

    Prepares the state directory too. A file that is lost or damaged is restored from ``backups``, if that has a
    good backup of it. For ``wait_s`` seconds it waits for an earlier worker to let go. Blocks; call it before
    serving. Raises StoreTooNewError for a newer CodeButler's file, StoreDamagedError for one
    that is damaged or lost, and StoreError for one that is foreign, in use or not writable.
    """
    if path.parent.name == STATE_DIR:
        prepare_state_dir(path.parent.parent)
    check_state_dir(path.parent)
    lock = writer_lock(path).acquire(wait_s)
    try:
        if backups is None:
            return Store(path, _open_file(path, clock), clock, lock, thread=thread)
        raw, restored = open_or_restore(partial(_open_file, path, clock), backups, path, clock)
        return Store(path, raw, clock, lock, restored, thread)
    except BaseException:
        lock.release()
        raise


def _open_file(path: Path, clock: Clock) -> sqlite3.Connection:
    return open_at_head(path, Shape(tables.HEAD, _columns(), schema), partial(_upgrade, path, clock))


def _upgrade(path: Path, clock: Clock, _found: sqlitefile.StoredContents) -> None:
    upgrade_store(path, clock)


@cache
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


@cache
def _columns() -> dict[str, frozenset[str]]:
    return {table.name: frozenset(table.columns.keys()) for table in tables.metadata.sorted_tables}
