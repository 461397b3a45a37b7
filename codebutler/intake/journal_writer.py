"""The one thread that writes the journal: whatever waits when it becomes free is one transaction."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from codebutler.disk import sqlitefile
from codebutler.errors import StoreError
from codebutler.intake import journal_file
from codebutler.intake.catchup import Seen
from codebutler.process.killpoints import reached

BATCH = 500
SETTLE_AFTER_S = 0.2
RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Append:
    """An event to commit; done, which belongs to the loop that asks, gives its seq, None if it was known."""

    key: str
    channel: str
    payload: tuple[str, str, str]
    seen: Seen | None
    done: asyncio.Future[int | None]


@dataclass(frozen=True, slots=True)
class Read:
    """Something to look up, in the order of the jobs."""

    function: Callable[[sqlite3.Connection], Any]
    done: asyncio.Future[Any]


@dataclass(frozen=True, slots=True)
class Change:
    """Something to write; done gives what it returned. ``aside``: no event depends on it."""

    function: Callable[[sqlite3.Connection], Any]
    done: asyncio.Future[Any]
    aside: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """A worker has stored the entry."""

    seq: int


class Stop:
    """Ends the writer."""


Job = Append | Read | Change | Settle | Stop
Told = tuple[asyncio.Future[Any], Any, StoreError | None]
"""A job's future, and what it gives or raises."""


class Writer:
    """The thread that owns the connection. ``pending`` is shared: it adds what it has committed."""

    def __init__(self, path: Path, connection: sqlite3.Connection, pending: set[int]) -> None:
        self.jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._path = path
        self._connection = connection
        self._anchor = sqlitefile.Anchor(path)
        self._pending = pending
        self._unwritten: set[int] = set()
        self._patience_s = SETTLE_AFTER_S
        # A daemon, so that a parent that forgets to close can still exit: SQLite survives that by design.
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            jobs = self._take()
            going = not any(isinstance(job, Stop) for job in jobs)
            writes = [job for job in jobs if isinstance(job, Append | Change) and not job.done.cancelled()]
            self._unwritten.update(job.seq for job in jobs if isinstance(job, Settle))
            only_settles = bool(jobs) and all(isinstance(job, Settle) for job in jobs)
            if not only_settles or len(self._unwritten) >= BATCH:
                self._write(writes)
            for job in jobs:
                if isinstance(job, Read):
                    self._read(job)
        self._connection.close()

    def _take(self) -> list[Job]:
        """All jobs that wait, at least one; none at all when settled entries have waited long enough."""
        jobs: list[Job] = []
        with suppress(queue.Empty):
            jobs.append(self.jobs.get(timeout=self._patience_s if self._unwritten else None))
            while len(jobs) < BATCH:
                jobs.append(self.jobs.get_nowait())
        return jobs

    def _write(self, writes: list[Append | Change]) -> None:
        """One transaction. What it could not do is told to those who wait; settling is tried again later."""
        if not writes and not self._unwritten:
            return
        try:
            results = self._transact(writes)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            self._patience_s = RETRY_AFTER_S
            _tell([(job.done, None, self._explain(error)) for job in writes])
            return
        self._patience_s = SETTLE_AFTER_S
        self._unwritten.clear()
        for job, result in zip(writes, results, strict=True):
            if isinstance(job, Append) and result is not None:
                self._pending.add(result)
        _tell([(job.done, result, None) for job, result in zip(writes, results, strict=True)])

    def _transact(self, writes: list[Append | Change]) -> list[Any]:
        """What each write gives: an event its seq, or None if it was known."""
        self._anchor.check()
        connection = self._connection
        aside = not self._unwritten and all(isinstance(job, Change) and job.aside for job in writes)
        what = "append" if any(isinstance(job, Append) for job in writes) else "settle"
        connection.execute("BEGIN IMMEDIATE")
        try:
            journal_file.drop_payloads(connection, self._unwritten)
            results = [_apply(connection, job) for job in writes]
            if not aside:
                reached(f"journal.{what}.before")
            connection.execute("COMMIT")
            if not aside:
                reached(f"journal.{what}.after")
        except BaseException:
            connection.rollback()
            raise
        return results

    def _read(self, job: Read) -> None:
        if job.done.cancelled():
            return
        try:
            _tell([(job.done, job.function(self._connection), None)])
        except sqlite3.Error as error:
            _tell([(job.done, None, self._explain(error))])

    def _explain(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else sqlitefile.store_error(self._path, error)


def _apply(connection: sqlite3.Connection, job: Append | Change) -> Any:
    if isinstance(job, Change):
        return job.function(connection)
    seq = journal_file.insert(connection, job.key, job.channel, job.payload)
    if job.seen is not None:
        journal_file.remember(connection, job.channel, job.seen)
    return seq


def _tell(outcomes: Sequence[Told]) -> None:
    """Hand them to the loop that waits: all at once, since each call wakes it."""
    for loop, told in groupby(outcomes, key=_loop):
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, list(told))


def _loop(told: Told) -> asyncio.AbstractEventLoop:
    return told[0].get_loop()


def _settle(outcomes: Sequence[Told]) -> None:
    for done, result, error in outcomes:
        if done.done():
            continue  # whoever asked went away meanwhile
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
