"""The parent's durable inbox: an event is committed here before it is acknowledged.

One thread writes. Everything that waits when it becomes free goes into one transaction (group commit), so
that a burst costs a few syncs instead of one each. Settling an entry is lazy, in separate transactions, so
that no event waits for it: it is written after a quiet moment; if a crash loses it, the event is only
delivered again, and the worker's own store knows it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Concatenate, ParamSpec, TypeVar

import msgspec

from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.domain.model import Event, MessagePosted, Request
from codebutler.domain.refs import ConversationRef
from codebutler.intake import journal_file
from codebutler.intake.absence import Arrival
from codebutler.intake.journal_writer import (
    LOOK_EVERY_S,
    Job,
    Label,
    ReadJob,
    SettleJob,
    StopJob,
    WatchJob,
    WriteJob,
    Writer,
)
from codebutler.intake.records import Entry, Gap, SeenMessage

P = ParamSpec("P")
T = TypeVar("T")


class Journal:
    """Append, settle, look up. Opened with ``Journal.open``; close it, or use ``async with``."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, clock: Clock, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._path = path
        self._clock = clock
        self._pending = {row[0] for row in journal_file.pending_rows(connection)}
        self._writer = Writer(path, connection, self._pending, clock, look_every_s)
        self._closed = False

    @classmethod
    def open(cls, path: Path, clock: Clock, look_every_s: float = LOOK_EVERY_S) -> Journal:
        """Open or create ``journal.db`` (mode 0600), and check every so often that it is still there. Blocks.

        Raises StoreTooNewError, StoreError.
        """
        return cls(path, journal_file.open_file(path, clock), clock, look_every_s)

    @property
    def pending_count(self) -> int:
        """How many entries no worker has stored yet."""
        return len(self._pending)

    @property
    def trouble(self) -> str:
        """Why nothing can be accepted, "" if it can: the file was removed."""
        return self._writer.trouble

    @property
    def mended(self) -> str:
        """How the file was removed and written again since it was opened, "" if it was not."""
        return self._writer.mended

    async def news(self) -> str:
        """Wait until the file was removed and is back, with a gap open for every channel, or cannot be
        restored; returns what happened."""
        job = WatchJob(asyncio.get_running_loop().create_future())
        self._submit(job)
        return await job.done

    async def append(self, event: Event, request: Request) -> Entry | None:
        """Commit an event; None if it is known. Order of ``seq`` is order of calls.

        Raises StoreError if it could not be committed: then it is not stored and must not be acknowledged.
        The journal continues, and takes the next append as soon as the disk does. A cancelled append may
        still have been committed; ``pending`` shows it.
        """
        received_at = self._clock.now()
        encoded = msgspec.json.encode(event).decode(), msgspec.json.encode(request).decode()
        payload = received_at.isoformat(), *encoded
        seq = await self._write("append", journal_file.append, event, payload)
        return None if seq is None else Entry(seq, event.channel, event, request, received_at)

    async def settle(self, seq: int) -> None:
        """A worker has stored the entry: drop its payload, keep its key. Returns at once.

        A second call, or one after ``close``, does nothing: the entry is then delivered again, which is
        harmless.
        """
        if seq in self._pending and not self._closed:
            self._submit(SettleJob(seq))
            self._pending.discard(seq)

    async def pending(self) -> list[Entry]:
        """Every entry not settled, in order. Raises StoreError if one cannot be read."""
        rows = await self._read(journal_file.pending_rows)
        return [self._entry(row) for row in rows if row[0] in self._pending]

    async def high_water(self, channel: ConversationRef) -> float:
        """When the newest message ever appended for the channel was written, in Unix seconds; 0 if none."""
        return await self._read(journal_file.mark, channel)

    async def pass_over(self, event: Event) -> bool:
        """Remember a message that is not for us, so that catch-up does not take it for a new one. False if it
        is known; an event that is no message is always new. Raises StoreError."""
        if not isinstance(event, MessagePosted) or event.origin != "chat":
            return True
        return await self._write("settle", journal_file.remember, event, taken=False)

    async def keep_channels(self, channels: Collection[ConversationRef]) -> None:
        """Forget every other channel's position: one that comes back starts over. Raises StoreError."""
        await self._write("settle", journal_file.keep_channels, tuple(channels))

    async def open_gaps(self, channels: Collection[ConversationRef], now: datetime) -> None:
        """From ``now`` on (the chat's time) messages of ``channels`` may be missed. Raises StoreError."""
        await self._write("settle", journal_file.open_gaps, tuple(channels), now.timestamp())

    async def begin_channel(self, channel: ConversationRef, now: datetime) -> None:
        """Messages from ``now`` on are for us, and none is missed yet. Raises StoreError."""
        await self._write("settle", journal_file.open_gaps, (channel,), now.timestamp())
        await self.close_gap(channel)

    async def gap(self, channel: ConversationRef, old_root: str = "") -> Gap | None:
        """What may have been missed, None if nothing. A thread is old if its first message's ref sorts up to
        ``old_root``. Raises StoreError."""
        return await self._read(journal_file.gap, channel, old_root)

    async def close_gap(self, channel: ConversationRef) -> None:
        """The channel's gap has been appended completely. Raises StoreError."""
        await self._write("settle", journal_file.close_gap, channel)

    async def seen(self, channel: ConversationRef, after_s: float = 0.0) -> tuple[SeenMessage, ...]:
        """The channel's messages of the last days that were written after ``after_s``, oldest first. Raises
        StoreError."""
        return await self._read(journal_file.seen_after, channel, after_s)

    async def arrivals(self, channel: ConversationRef, since: datetime) -> tuple[Arrival, ...]:
        """The channel's messages of the last days that were written from ``since`` on. Raises StoreError."""
        return await self._read(journal_file.arrivals, channel, since.timestamp())

    async def newest_before(self, channel: ConversationRef, moment: datetime) -> float:
        """When the channel's last message of the last days before ``moment`` was written, 0 if there is none. Raises
        StoreError."""
        return await self._read(journal_file.newest_before, channel, moment.timestamp())

    async def note(self, name: str) -> str:
        """The note ``name``, from this supervisor or an earlier one; "" for none. Raises StoreError."""
        return await self._read(journal_file.note, name)

    async def keep_note(self, name: str, value: str) -> None:
        """Store a note, replacing an earlier one. Raises StoreError."""
        await self._write("", journal_file.keep_note, name, value)

    async def place_direct(
        self, home: ConversationRef, channel: ConversationRef, items: Collection[str]
    ) -> None:
        """These messages and files of a direct conversation belong to the repository of channel ``home``.

        Raises StoreError.
        """
        await self._write("", journal_file.place_direct, home, channel, tuple(items))

    async def placed_direct(self) -> list[tuple[ConversationRef, str, ConversationRef]]:
        """The latest assignments of ``place_direct``, oldest first: (home, item, channel). Raises StoreError."""
        return await self._read(journal_file.placed_direct)

    async def forget_old(self, now: datetime) -> None:
        """Delete what is too old, or too much, to be asked for again. Raises StoreError."""
        await self._write("", journal_file.forget_old, now)

    async def close(self) -> None:
        """Finish the queued jobs, then close the file. A second call does nothing."""
        if not self._closed:
            self._submit(StopJob())
            self._closed = True
        await asyncio.to_thread(self._writer.join)

    async def __aenter__(self) -> Journal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _read(
        self, function: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._submit(ReadJob(lambda connection: function(connection, *args, **kwargs), done))
        return await done

    async def _write(
        self,
        label: Label,
        function: Callable[Concatenate[sqlite3.Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._submit(WriteJob(lambda connection: function(connection, *args, **kwargs), done, label))
        return await done

    def _submit(self, job: Job) -> None:
        if self._closed:
            raise StoreError(f"{self._path} is closed")
        self._writer.jobs.put(job)

    def _entry(self, row: journal_file.PendingRow) -> Entry:
        seq, channel, received_at, event, request = row
        try:
            return Entry(
                seq,
                ConversationRef(channel),
                msgspec.json.decode(event, type=Event),
                msgspec.json.decode(request, type=Request),
                datetime.fromisoformat(received_at),
            )
        except (msgspec.DecodeError, ValueError) as error:
            raise StoreError(f"{self._path}: entry {seq} cannot be read: {error}") from error
