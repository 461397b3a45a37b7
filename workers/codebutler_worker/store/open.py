"""The store, one writer thread; and opening it, which brings an older or WhatsApp-era file up to date."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateIndex, CreateTable

from codebutler import sqlitefile
from codebutler.clock import Clock
from codebutler.errors import StoreError, StoreTooNewError
from codebutler_worker.store import tables
from codebutler_worker.store.state_dir import STATE_DIR, check_state_dir, prepare_state_dir
from codebutler_worker.store.unit import UnitOfWork

T = TypeVar("T")


class Store:
    """One connection in one thread: transactions run one after another, in the order they were asked for."""

    def __init__(self, path: Path, raw: sqlite3.Connection, clock: Clock) -> None:
        self._path = path
        self._raw = raw
        self._clock = clock
        engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: raw,
            poolclass=StaticPool,
            hide_parameters=True,  # what people write must not end up in an error's text
        )
        self._connection: Connection = engine.connect()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
        self._closed = False

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Do ``work`` as one transaction on the writer's thread; it is committed when this returns.

        If ``work`` raises, everything it did is rolled back and its exception comes out here. Raises
        StoreError when the disk or the file is at fault (nothing is kept then; trying again later is safe).
        If the caller is cancelled while the work runs, the transaction still ends, one way or the other.
        """
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(self._transact, work))

    async def close(self) -> None:
        """Finish what was asked for, then close the file. May be called twice."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._shut)
        self._thread.shutdown()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _transact(self, work: Callable[[UnitOfWork], T]) -> T:
        try:
            with self._connection.begin():
                self._connection.exec_driver_sql("BEGIN IMMEDIATE")
                return work(UnitOfWork(self._connection, self._clock))
        except IntegrityError:
            raise
        except DatabaseError as error:
            cause = error.orig if isinstance(error.orig, Exception) else error
            raise sqlitefile.store_error(self._path, cause) from error

    def _shut(self) -> None:
        self._connection.close()
        self._connection.engine.dispose()
        self._raw.close()


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
    try:
        raw = sqlitefile.connect(path)
    except sqlite3.Error as error:
        raise sqlitefile.store_error(path, error) from error
    try:
        contents = sqlitefile.examine(raw, path)
        if contents.revision != tables.HEAD:
            refuse_newer(path, contents.revision)
            raw.close()
            # By name: Alembic is loaded only by those who need it.
            import_module("codebutler_worker.store.migrate").migrate_store(path, clock=clock)
            raw = sqlitefile.connect(path)
        path.chmod(0o600)
        return Store(path, raw, clock)
    except (sqlite3.Error, OSError) as error:
        raw.close()
        raise sqlitefile.store_error(path, error) from error
    except BaseException:
        raw.close()
        raise


def refuse_newer(path: Path, revision: str | None) -> None:
    """Raise StoreTooNewError unless the revision is one this version knows (or none at all)."""
    if revision and revision not in tables.REVISIONS:
        raise StoreTooNewError(
            f"{path} was written by a newer CodeButler (revision {revision}): update this one"
        )


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
