"""The one thread that writes the journal: whatever waits when it becomes free is one transaction."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from codebutler.disk import sqlitefile
from codebutler.errors import StoreError
from codebutler.intake import journal_file
from codebutler.intake.catchup import Seen
from codebutler.process.killpoints import reached

BATCH = 500
# Settled entries are written down when it has been quiet for so long, or when there are so many.
SETTLE_AFTER_S = 0.2
GATHERED = 100
RETRY_AFTER_S = 5.0

T = TypeVar("T")


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
            if writes:
                self._write(writes)
            for job in jobs:
                if isinstance(job, Read):
                    self._read(job)
            self._unwritten.update(job.seq for job in jobs if isinstance(job, Settle))
            if self._unwritten and (not jobs or not going or len(self._unwritten) >= GATHERED):
                self._settle()
        self._connection.close()

    def _take(self) -> list[Job]:
        """All jobs that wait, at least one; none at all when settled entries have waited long enough."""
        try:
            jobs = [self.jobs.get(timeout=self._patience_s if self._unwritten else None)]
        except queue.Empty:
            return []
        # Nobody else takes from it: what it has, it has still.
        while len(jobs) < BATCH and not self.jobs.empty():
            jobs.append(self.jobs.get())
        return jobs

    def _write(self, writes: list[Append | Change]) -> None:
        """One transaction. What it could not do is told to those who wait."""
        kind = "append" if any(isinstance(job, Append) for job in writes) else "settle"
        aside = all(isinstance(job, Change) and job.aside for job in writes)
        try:
            results = self._transact(partial(_apply_all, writes), "" if aside else kind)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            _tell([(job.done, None, self._explain(error)) for job in writes])
            return
        for job, result in zip(writes, results, strict=True):
            if isinstance(job, Append) and result is not None:
                self._pending.add(result)
        _tell([(job.done, result, None) for job, result in zip(writes, results, strict=True)])

    def _settle(self) -> None:
        """Write down what is settled, in a transaction of its own: nobody waits for it. If need be later."""
        try:
            self._transact(partial(journal_file.drop_payloads, seqs=self._unwritten), "settle")
        except Exception:  # noqa: BLE001 - whatever it was, an event that waits would be told
            self._patience_s = RETRY_AFTER_S
            return
        self._patience_s = SETTLE_AFTER_S
        self._unwritten.clear()

    def _transact(self, work: Callable[[sqlite3.Connection], T], label: str) -> T:
        """What ``work`` gives, once it is on disk."""
        self._anchor.check()
        connection = self._connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            if label:
                reached(f"journal.{label}.before")
            connection.execute("COMMIT")
            if label:
                reached(f"journal.{label}.after")
        except BaseException:
            connection.rollback()
            raise
        return result

    def _read(self, job: Read) -> None:
        if job.done.cancelled():
            return
        try:
            _tell([(job.done, job.function(self._connection), None)])
        except sqlite3.Error as error:
            _tell([(job.done, None, self._explain(error))])

    def _explain(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else sqlitefile.store_error(self._path, error)


def _apply_all(writes: Sequence[Append | Change], connection: sqlite3.Connection) -> list[Any]:
    """What each gives: an event its seq, or None if it was known."""
    return [_apply(connection, job) for job in writes]


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
