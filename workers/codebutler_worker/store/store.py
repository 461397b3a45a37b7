"""The store: one connection, and one thread that runs transactions one after another. Deletes old rows."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.platform import sqlitefile
from codebutler.platform.backups import Restored
from codebutler.platform.files import FileLock
from codebutler.platform.signals import reached
from codebutler_worker.store.rows import TurnState
from codebutler_worker.store.unit_of_work import Outgoing, UnitOfWork, iso

T = TypeVar("T")

_OPEN = """
SELECT EXISTS (SELECT 1 FROM outbox WHERE state = 'pending')
    OR EXISTS (SELECT 1 FROM turns WHERE state IN ({}))
    OR EXISTS (SELECT 1 FROM errands)
"""
# As long as the daily backups reach back. Nothing looks for older ones: the chat is asked about pending
# operations
# only, others wait for pending ones only, and a turn's newest messages are edited until its end only.
KEPT = timedelta(days=7)
# Each batch is a transaction; others wait some milliseconds for it.
BATCH = 500
# Reads old rows only: the first operations are the oldest, so the daily cost does not depend on the store's
# length.
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
    """One connection in one thread: transactions run one after another, in the order of the calls.

    ``lock`` keeps other writers away; closing the store releases it. ``restored``: a backup has replaced a
    lost file. ``thread`` is the one to work in, if it exists already.
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
        self._thread = thread or store_thread()
        self._closed = False

    async def run(self, work: Callable[[UnitOfWork], T], redact: Callable[[str], str] = str) -> T:
        """Run ``work`` as one transaction on the writer's thread; it is committed when this returns.

        If ``work`` raises, everything is rolled back and its exception is raised here. Raises StoreError if
        the disk or the file is at fault (nothing is stored then; a retry is safe). If the caller is cancelled
        while the work runs, the transaction is still committed or rolled back.
        """
        return (await self.transact(work, redact))[0]

    async def transact(
        self, work: Callable[[UnitOfWork], T], redact: Callable[[str], str] = str
    ) -> tuple[T, list[Outgoing]]:
        """The same; also returns the operations to send."""
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._transact, work, redact)

    async def anything_open(self, unfinished: Collection[TurnState]) -> bool:
        """Whether an operation or a deferred command is left, or a turn in one of these states. Raises StoreError."""
        return await self.exists(_OPEN.format(", ".join("?" * len(unfinished))), *unfinished)

    async def exists(self, query: str, *given: object) -> bool:
        """The result of a ``SELECT EXISTS …``. Raises StoreError."""
        return await self._directly(lambda raw: bool(raw.execute(query, given).fetchone()[0]))

    async def forget_old(self, now: datetime) -> None:
        """Delete finished rows that are old, in small transactions (see ``forget_some``). Raises StoreError."""
        last: int | None = 0
        while last is not None:
            last = await self._directly(partial(forget_some, now=now, after=last))

    async def close(self) -> None:
        """Finish the queued transactions, then close the file. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._shut)
        self._thread.shutdown()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _directly(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask, work)

    def _ask(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._anchor.check()
        try:
            return work(self._raw)
        except sqlite3.Error as error:
            raise sqlitefile.store_error(self._path, error) from error

    def _transact(
        self, work: Callable[[UnitOfWork], T], redact: Callable[[str], str]
    ) -> tuple[T, list[Outgoing]]:
        self._anchor.check()
        try:
            self._raw.execute("BEGIN IMMEDIATE")
            uow = UnitOfWork(self._raw, self._clock, redact)
            result = work(uow)
            if uow.operations:
                reached("outbox.before")
            self._raw.execute("COMMIT")
            return result, uow.operations
        except sqlite3.IntegrityError:
            raise
        except sqlite3.DatabaseError as error:
            raise sqlitefile.store_error(self._path, error) from error
        finally:
            # A failed COMMIT (a full disk, a broken reference) also leaves SQLite's transaction open.
            if self._raw.in_transaction:
                self._raw.rollback()

    def _shut(self) -> None:
        self._raw.close()
        self._lock.release()


def store_thread() -> ThreadPoolExecutor:
    """The one thread in which a store works."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")


def forget_some(connection: sqlite3.Connection, now: datetime, after: int) -> int | None:
    """Delete the old finished ones of a batch of operations whose ``seq`` is above ``after``, in one
    transaction. Returns the last one's ``seq``, None if the batch has no old ones. Raises sqlite3.Error."""
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
