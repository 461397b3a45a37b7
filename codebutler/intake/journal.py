"""The parent's durable inbox: an event is committed here before anybody is told that we have it.

One thread writes. Everything that waits when it becomes free goes into one transaction (group commit), so
that a burst costs a few syncs instead of one each. Settling an entry is lazy: it rides along with the next
transaction or is written shortly after; losing that to a crash only delivers an event again, which the
worker's own store knows.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from codebutler import sqlitefile
from codebutler.clock import Clock
from codebutler.errors import StoreError
from codebutler.intake import journal_file
from codebutler.intake.catchup import Gap, Seen
from codebutler.killpoints import reached
from codebutler.model import Event, MessagePosted, Request

T = TypeVar("T")

BATCH = 500
SETTLE_AFTER_S = 0.2
RETRY_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed event; ``seq`` is its place in the journal."""

    seq: int
    channel: str
    event: Event
    request: Request
    received_at: datetime


@dataclass(frozen=True, slots=True)
class _Append:
    key: str
    channel: str
    payload: tuple[str, str, str]
    seen: Seen | None
    done: Future[int | None] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Read:
    function: Callable[[sqlite3.Connection], Any]
    done: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Change:
    function: Callable[[sqlite3.Connection], Any]
    done: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class _Settle:
    seq: int


class _Stop:
    """Ends the writer."""


_Job = _Append | _Read | _Change | _Settle | _Stop


class Journal:
    """Append, settle, look up. Opened with ``Journal.open``; close it, or use ``async with``."""

    def __init__(self, path: Path, connection: sqlite3.Connection, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._pending = {row[0] for row in journal_file.pending_rows(connection)}
        self._writer = _Writer(path, connection, self._pending)
        self._closed = False

    @classmethod
    def open(cls, path: Path, clock: Clock) -> Journal:
        """Open or create ``journal.db`` (mode 0600). Blocks. Raises StoreTooNewError, StoreError."""
        return cls(path, journal_file.open_file(path, clock), clock)

    @property
    def pending_count(self) -> int:
        """How many entries no worker has stored yet."""
        return len(self._pending)

    async def append(self, event: Event, request: Request) -> Entry | None:
        """Commit an event; None if it was seen before, ever. Order of ``seq`` is order of calls.

        Raises StoreError if it could not be committed: then it is not kept and must not be acknowledged. The
        journal goes on, and takes the next append as soon as the disk does. An append that is cancelled may
        have been committed all the same; ``pending`` tells.
        """
        received_at = self._clock.now()
        job = _Append(
            key=event.key,
            channel=event.channel,
            payload=(received_at.isoformat(), _encode(event), _encode(request)),
            seen=_seen(event, taken=True),
        )
        self._submit(job)
        seq = await asyncio.wrap_future(job.done)
        return None if seq is None else Entry(seq, event.channel, event, request, received_at)

    async def settle(self, seq: int) -> None:
        """A worker has stored the entry: its payload may go, its key stays. Returns at once.

        Once more, or after ``close``, does nothing: the entry is then delivered again, which is harmless.
        """
        if seq in self._pending and not self._closed:
            self._submit(_Settle(seq))
            self._pending.discard(seq)

    async def pending(self, channel: str | None = None) -> list[Entry]:
        """Every entry not settled (of one channel), in order. Raises StoreError if one cannot be read."""
        rows = await self._read(partial(journal_file.pending_rows, channel=channel))
        return [self._entry(row) for row in rows if row[0] in self._pending]

    async def high_water(self, channel: str) -> str:
        """The newest ts of a Slack message of the channel that was ever appended; "" if none."""
        return await self._read(partial(journal_file.mark, channel=channel))

    async def pass_over(self, event: Event) -> bool:
        """Remember a message that is not for us, so that catching up does not take it for a new one. False if
        it came before; what is no message is always new. Raises StoreError."""
        if (seen := _seen(event, taken=False)) is None:
            return True
        return await self._change(partial(journal_file.remember, channel=event.channel, seen=seen))

    async def keep_channels(self, channels: Collection[str]) -> None:
        """Forget where every other channel stood: should it come back, it begins anew. Raises StoreError."""
        await self._change(partial(journal_file.keep_channels, channels=tuple(channels)))

    async def open_gaps(self, channels: Collection[str], since: datetime | None = None) -> None:
        """From now on messages of ``channels`` may be missed; of a channel that is new here, those from
        ``since`` (default: now) on. Raises StoreError."""
        now_ts = f"{(since or self._clock.now()).timestamp():.6f}"
        await self._change(partial(_open_gaps, channels=tuple(channels), now_ts=now_ts))

    async def gap(self, channel: str) -> Gap | None:
        """What may have been missed, None if nothing. Raises StoreError."""
        return await self._read(partial(journal_file.gap, channel=channel))

    async def close_gap(self, channel: str) -> None:
        """Everything of the channel's gap has been appended. Raises StoreError."""
        await self._change(partial(journal_file.close_gap, channel=channel))

    async def seen(self, channel: str) -> tuple[Seen, ...]:
        """The channel's messages of the last days, oldest first. Raises StoreError."""
        return await self._read(partial(journal_file.seen_in, channel=channel))

    async def close(self) -> None:
        """Finish what was asked for, then close the file. May be called twice."""
        if not self._closed:
            self._submit(_Stop())
            self._closed = True
        await asyncio.to_thread(self._writer.join)

    async def __aenter__(self) -> Journal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _read(self, function: Callable[[sqlite3.Connection], T]) -> T:
        job = _Read(function)
        self._submit(job)
        answer: T = await asyncio.wrap_future(job.done)
        return answer

    async def _change(self, function: Callable[[sqlite3.Connection], T]) -> T:
        job = _Change(function)
        self._submit(job)
        answer: T = await asyncio.wrap_future(job.done)
        return answer

    def _submit(self, job: _Job) -> None:
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        self._writer.jobs.put(job)

    def _entry(self, row: journal_file.PendingRow) -> Entry:
        seq, channel, received_at, event, request = row
        try:
            return Entry(
                seq,
                channel,
                msgspec.json.decode(event, type=Event),
                msgspec.json.decode(request, type=Request),
                datetime.fromisoformat(received_at),
            )
        except (msgspec.DecodeError, ValueError) as error:
            raise StoreError(f"{self._path}: entry {seq} cannot be read: {error}") from error


class _Writer:
    """The thread that owns the connection. ``pending`` is shared: it adds what it has committed."""

    def __init__(self, path: Path, connection: sqlite3.Connection, pending: set[int]) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
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
            going = not any(isinstance(job, _Stop) for job in jobs)
            writes = [
                j for j in jobs if isinstance(j, _Append | _Change) and j.done.set_running_or_notify_cancel()
            ]
            self._unwritten.update(job.seq for job in jobs if isinstance(job, _Settle))
            only_settles = bool(jobs) and all(isinstance(job, _Settle) for job in jobs)
            if not only_settles or len(self._unwritten) >= BATCH:
                self._write(writes)
            for job in jobs:
                if isinstance(job, _Read):
                    self._read(job)
        self._connection.close()

    def _take(self) -> list[_Job]:
        """All jobs that wait, at least one; none at all when settled entries have waited long enough."""
        jobs: list[_Job] = []
        with suppress(queue.Empty):
            jobs.append(self.jobs.get(timeout=self._patience_s if self._unwritten else None))
            while len(jobs) < BATCH:
                jobs.append(self.jobs.get_nowait())
        return jobs

    def _write(self, writes: list[_Append | _Change]) -> None:
        """One transaction. What it could not do is told to those who wait; settling is tried again later."""
        if not writes and not self._unwritten:
            return
        try:
            results = self._transact(writes)
        except Exception as error:  # noqa: BLE001 - whatever it was, nobody may wait for ever
            self._patience_s = RETRY_AFTER_S
            for job in writes:
                job.done.set_exception(self._explain(error))
            return
        self._patience_s = SETTLE_AFTER_S
        self._unwritten.clear()
        for job, result in zip(writes, results, strict=True):
            if isinstance(job, _Append) and result is not None:
                self._pending.add(result)
        for job, result in zip(writes, results, strict=True):
            job.done.set_result(result)

    def _transact(self, writes: list[_Append | _Change]) -> list[Any]:
        """What each write gives: an event its seq, or None if it was known."""
        self._anchor.check()
        connection = self._connection
        what = "append" if any(isinstance(job, _Append) for job in writes) else "settle"
        connection.execute("BEGIN IMMEDIATE")
        try:
            journal_file.drop_payloads(connection, self._unwritten)
            results = [_apply(connection, job) for job in writes]
            reached(f"journal.{what}.before")
            connection.execute("COMMIT")
            reached(f"journal.{what}.after")
        except BaseException:
            connection.rollback()
            raise
        return results

    def _read(self, job: _Read) -> None:
        if not job.done.set_running_or_notify_cancel():
            return
        try:
            job.done.set_result(job.function(self._connection))
        except sqlite3.Error as error:
            job.done.set_exception(self._explain(error))

    def _explain(self, error: Exception) -> StoreError:
        return error if isinstance(error, StoreError) else sqlitefile.store_error(self._path, error)


def _apply(connection: sqlite3.Connection, job: _Append | _Change) -> Any:
    if isinstance(job, _Change):
        return job.function(connection)
    seq = journal_file.insert(connection, job.key, job.channel, job.payload)
    if job.seen is not None:
        journal_file.remember(connection, job.channel, job.seen)
    return seq


def _seen(event: Event, *, taken: bool) -> Seen | None:
    if not isinstance(event, MessagePosted) or event.origin != "slack":
        return None
    return Seen(event.ts, event.root_ts, event.user, taken)


def _open_gaps(connection: sqlite3.Connection, channels: tuple[str, ...], now_ts: str) -> None:
    for channel in channels:
        journal_file.open_gap(connection, channel, now_ts)


def _encode(value: Event | Request) -> str:
    return msgspec.json.encode(value).decode()
