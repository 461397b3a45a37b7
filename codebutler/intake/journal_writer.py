"""The one thread that writes the journal: everything that waits when it becomes free is one transaction."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.intake import journal_file
from codebutler.platform import sqlitefile
from codebutler.platform.backups import put_back
from codebutler.platform.kill_points import reached

BATCH = 500
# Settled entries are written after this much quiet, or when there are this many.
SETTLE_AFTER_S = 0.2
GATHERED = 100
RETRY_AFTER_S = 5.0
# How often it checks that the file is still there, if it has nothing else to do.
LOOK_EVERY_S = 30.0

T = TypeVar("T")


Label = Literal["append", "settle", ""]
Told = tuple[asyncio.Future[Any], Any, StoreError | None]
"""A job's future, and its result or exception."""


class ReadJob(Struct, frozen=True):
    """A query, in the order of the jobs; ``done``, which belongs to the asking loop, gets its result."""

    function: Callable[[sqlite3.Connection], Any]
    done: asyncio.Future[Any]


class WriteJob(Struct, frozen=True):
    """A write; ``done`` gets its result: for an "append" the new entry's seq, None if it was known. ``label``
    names its kill points; "" = no event depends on it."""

    function: Callable[[sqlite3.Connection], Any]
    done: asyncio.Future[Any]
    label: Label


class SettleJob(Struct, frozen=True):
    """A worker has stored the entry."""

    seq: int


class WatchJob(Struct, frozen=True):
    """Resolved with a sentence once the file was removed or replaced, and is back or cannot be restored."""

    done: asyncio.Future[str]


class StopJob:
    """Ends the writer."""


Job = ReadJob | WriteJob | SettleJob | WatchJob | StopJob


class Writer:
    """The thread that owns the connection. ``pending`` is shared: the thread adds what it has committed.

    A file that is removed or replaced while in use is written again from what the connection still sees.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        pending: set[int],
        clock: Clock,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self.trouble = ""
        """Why nothing can be written, "" if it can."""
        self.mended = ""
        """How the file was removed and written again, "" if it was not."""
        self._clock = clock
        self._look_every_s = look_every_s
        self._watching: list[asyncio.Future[str]] = []
        self._news: list[str] = []
        self.jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._path = path
        self._connection = connection
        self._anchor = sqlitefile.Anchor(path)
        self._pending = pending
        self._unwritten: set[int] = set()
        self._patience_s = SETTLE_AFTER_S
        # A daemon thread, so that a parent that forgets to close can still exit: SQLite survives that by
        # design.
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the thread."""
        self._thread.join()

    def _run(self) -> None:
        going = True
        while going:
            jobs = self._take()
            going = not any(isinstance(job, StopJob) for job in jobs)
            writes = [job for job in jobs if isinstance(job, WriteJob) and not job.done.cancelled()]
            if writes:
                self._write(writes)
            for job in jobs:
                if isinstance(job, ReadJob):
                    self._read(job)
            self._watching += [job.done for job in jobs if isinstance(job, WatchJob)]
            if not jobs:
                with suppress(StoreError):  # ``trouble`` reports it
                    self._mend()
            self._spread()
            self._unwritten.update(job.seq for job in jobs if isinstance(job, SettleJob))
            if self._unwritten and (not jobs or not going or len(self._unwritten) >= GATHERED):
                # In a separate transaction that nobody waits for.
                try:
                    self._transact(partial(journal_file.drop_payloads, seqs=self._unwritten), "settle")
                    self._unwritten.clear()
                    self._patience_s = SETTLE_AFTER_S
                except Exception:  # noqa: BLE001 - whatever it was, an event that waits would be told
                    self._patience_s = RETRY_AFTER_S
        self._connection.close()

    def _take(self) -> list[Job]:
        """All waiting jobs, at least one; none after a long enough quiet."""
        try:
            jobs = [self.jobs.get(timeout=self._patience_s if self._unwritten else self._look_every_s)]
        except queue.Empty:
            return []
        # Nobody else takes from it: what it has now stays.
        while len(jobs) < BATCH and not self.jobs.empty():
            jobs.append(self.jobs.get())
        return jobs

    def _write(self, writes: list[WriteJob]) -> None:
        """One transaction. Its failures go to the jobs that wait."""
        labels = {job.label for job in writes}
        label: Label = "append" if "append" in labels else "settle" if "settle" in labels else ""
        try:
            results = self._transact(lambda connection: [job.function(connection) for job in writes], label)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            _tell([(job.done, None, self._explain(error)) for job in writes])
            return
        for job, result in zip(writes, results, strict=True):
            if job.label == "append" and result is not None:
                self._pending.add(result)
        _tell([(job.done, result, None) for job, result in zip(writes, results, strict=True)])

    def _transact(self, work: Callable[[sqlite3.Connection], T], label: Label) -> T:
        """The result of ``work``, once it is on disk."""
        self._mend()
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

    def _mend(self) -> None:
        """Check that the file is the one that was opened; else restore it. Raises StoreError."""
        if self._anchor.holds:
            return
        now = self._clock.now()
        what = f"{self._path} was removed or replaced while it was in use"
        try:
            aside = put_back(self._path, self._connection, now)
            connection = journal_file.open_file(self._path, self._clock)
            journal_file.open_known_gaps(connection)
        except (StoreError, sqlite3.Error) as error:
            trouble = f"{what} and cannot be recreated ({error}): messages are refused until this is fixed"
            if trouble != self.trouble:
                self.trouble = trouble
                self._news.append(trouble)
            raise StoreError(trouble) from error
        self._connection.close()
        self._connection, self._anchor = connection, sqlitefile.Anchor(self._path)
        kept = f"; what was in its place is now {aside}" if aside else ""
        self.trouble = ""
        self.mended = f"{what}; it was recreated at {now:%Y-%m-%d %H:%M} UTC, and nothing was lost{kept}"
        self._news.append(self.mended)

    def _spread(self) -> None:
        """Tell those who watch."""
        if self._news and self._watching:
            text = ". ".join(self._news)
            _tell([(done, text, None) for done in self._watching])
            self._news, self._watching = [], []

    def _read(self, job: ReadJob) -> None:
        if job.done.cancelled():
            return
        try:
            _tell([(job.done, job.function(self._connection), None)])
        except sqlite3.Error as error:
            _tell([(job.done, None, self._explain(error))])

    def _explain(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else sqlitefile.store_error(self._path, error)


def _tell(outcomes: Sequence[Told]) -> None:
    """Pass them to the waiting loop together, since each call wakes it."""
    for loop, told in groupby(outcomes, key=lambda outcome: outcome[0].get_loop()):
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, list(told))


def _settle(outcomes: Sequence[Told]) -> None:
    for done, result, error in outcomes:
        if done.done():
            continue  # the caller was cancelled meanwhile
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
