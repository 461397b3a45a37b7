"""The store: one connection, and the one thread on which transactions run one after another. What need not be kept."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, make_url
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DatabaseError, IntegrityError
from sqlalchemy.pool import StaticPool

from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.platform import sqlitefile
from codebutler.platform.backups import Restored
from codebutler.platform.files import FileLock
from codebutler_worker.store.rows import TurnState
from codebutler_worker.store.unit_of_work import UnitOfWork, iso

T = TypeVar("T")

_OPEN = """
SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'pending')
    OR EXISTS (SELECT 1 FROM turns WHERE state IN ({}))
    OR EXISTS (SELECT 1 FROM errands)
"""
# As long as the daily backups reach back. Nothing looks for an older one: only what is pending is looked up in the chat
# or waits for another, and the newest messages of a turn are edited while it has not come to its end.
KEPT = timedelta(days=7)
# Each batch is a transaction, which holds up those behind it for some milliseconds.
BATCH = 500
# SQLite's own words and not SQLAlchemy's, whose first use costs a worker that waits megabytes. The first operations
# are the oldest, so what is young is not read: a store of any length costs the same each day.
_BATCH = "SELECT max(seq), min(created_at) FROM (SELECT seq, created_at FROM outbox WHERE seq > ? ORDER BY seq LIMIT ?)"
_FORGET = """
DELETE FROM outbox AS old
WHERE seq > ? AND seq <= ?
    AND state IN ('posted', 'failed')
    AND created_at < ?
    AND (turn_id IS NULL OR EXISTS (
        SELECT 1 FROM turns WHERE turns.id = old.turn_id AND turns.state IN ('done', 'failed', 'stopped')
    ))
    AND NOT EXISTS (
        SELECT 1 FROM outbox AS waiting WHERE waiting.target_op_id = old.op_id AND waiting.state = 'pending'
    )
"""


class Store:
    """One connection in one thread: transactions run one after another, in the order they were asked for.

    ``lock`` keeps every other writer away; closing the store releases it. ``restored`` tells that a backup
    was put in the place of a lost file. ``thread`` is the one to work in, if it exists already.
    """

    def __init__(
        self,
        path: Path,
        raw: sqlite3.Connection,
        clock: Clock,
        lock: FileLock,
        restored: Restored | None = None,
        thread: ThreadPoolExecutor | None = None,
    ) -> None:
        self.restored = restored
        self._path = path
        self._lock = lock
        self._raw = raw
        self._clock = clock
        self._anchor = sqlitefile.Anchor(path)
        self._connection: Connection | None = None
        self._thread = thread or store_thread()
        self._closed = False

    async def run(self, work: Callable[[UnitOfWork], T], redact: Callable[[str], str] = str) -> T:
        """Do ``work`` as one transaction on the writer's thread; it is committed when this returns.

        If ``work`` raises, everything it did is rolled back and its exception comes out here. Raises
        StoreError when the disk or the file is at fault (nothing is kept then; trying again later is safe).
        If the caller is cancelled while the work runs, the transaction still ends, one way or the other.
        """
        return await self._on_thread(partial(self._transact, work, redact))

    async def anything_open(self, unfinished: Collection[TurnState]) -> bool:
        """Whether an operation or a deferred command is left, or a turn in one of these states. Raises StoreError."""
        return await self.exists(_OPEN.format(", ".join("?" * len(unfinished))), *unfinished)

    async def exists(self, query: str, *given: object) -> bool:
        """What a ``SELECT EXISTS …`` says. Raises StoreError.

        Asked of SQLite itself, for the start of a worker: SQLAlchemy, whose first use costs a worker megabytes of
        memory that it shared until then, waits for the first event.
        """
        return await self._directly(lambda raw: bool(raw.execute(query, given).fetchone()[0]))

    async def forget_old(self, now: datetime) -> None:
        """Drop what is over since long, in small transactions (see ``pruning``). Raises StoreError."""
        last: int | None = 0
        while last is not None:
            last = await self._directly(partial(forget_some, now=now, after=last))

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

    async def _on_thread(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _directly(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._on_thread(partial(self._ask, work))

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._anchor.check()
        try:
            return work(self._raw)
        except sqlite3.Error as error:
            raise sqlitefile.store_error(self._path, error) from error

    def _transact(self, work: Callable[[UnitOfWork], T], redact: Callable[[str], str]) -> T:
        self._anchor.check()
        if self._connection is None:
            self._connection = _engine(self._raw).connect()
        try:
            with self._connection.begin():
                self._connection.exec_driver_sql("BEGIN IMMEDIATE")
                return work(UnitOfWork(self._connection, self._clock, redact))
        except IntegrityError:
            raise
        except DatabaseError as error:
            cause = error.orig if isinstance(error.orig, Exception) else error
            raise sqlitefile.store_error(self._path, cause) from error
        finally:
            # A COMMIT that fails (a full disk, a broken reference) leaves SQLite's transaction open.
            if self._raw.in_transaction:
                self._raw.rollback()

    def _shut(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection.engine.dispose()
        self._raw.close()
        self._lock.release()


def store_thread() -> ThreadPoolExecutor:
    """The one thread in which a store works."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")


def _engine(raw: Any) -> Engine:  # SQLAlchemy asks for more than the sqlite3 module declares
    dialect, url, compiled = _shared()
    return Engine(
        StaticPool(lambda: raw, dialect=dialect),
        dialect,
        url,
        hide_parameters=True,  # what people write must not end up in an error's text
        execution_options={"compiled_cache": compiled},
    )


@cache
def _shared() -> tuple[SQLiteDialect_pysqlite, URL, dict[Any, Any]]:
    """The dialect and its compiled statements, the same for every store: workers inherit them from the fork
    server instead of building their own."""
    dialect = SQLiteDialect_pysqlite(dbapi=SQLiteDialect_pysqlite.import_dbapi())
    return dialect, make_url("sqlite+pysqlite://"), {}


def forget_some(connection: sqlite3.Connection, now: datetime, after: int) -> int | None:
    """Drop what may go of a batch of the oldest operations whose ``seq`` is above ``after``, in one transaction.
    Returns the last one's, None where the batch has nothing that is old. Raises sqlite3.Error."""
    before = iso(now - KEPT)
    last: int | None
    last, oldest = connection.execute(_BATCH, (after, BATCH)).fetchone()
    if last is None or oldest >= before:
        return None
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_FORGET, (after, last, before))
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise
    return last
