"""A gateway's journal: an event is on the disks of the NATS servers before it is acknowledged to its chat.

The bucket ``CB_TAKEN`` has every accepted event until it is settled, and knows its key for some hours after that. So
the next gateway knows what the one before it accepted, even if that one's disk is gone: it delivers events that are not
settled, and recognises settled ones as duplicates. Each gateway also keeps the same journal file as a single machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from codebutler.cluster.buckets import BusError, KeyBucket, retry_until_answered
from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError
from codebutler.domain.model import Event, Request
from codebutler.domain.refs import ConversationRef
from codebutler.intake import journal_file
from codebutler.intake.journal import Journal
from codebutler.intake.records import Entry
from codebutler.platform.tasks import Tasks, first_of

ACCEPT_S = 2.0
"""A chat repeats an event that is not acknowledged soon."""
SETTLED_KNOWN_S = 7200.0
"""How long a settled event is known: twice as long as a chat repeats it."""
POSITION_S = 5.0
OVERLAP_S = 60.0
"""The next gateway reads the chat's history from this long before the last position."""
RETRY_S = 1.0
FLUSH_S = 3.0
SETTLING_AT_ONCE = 32
MAX_ACCEPTED_BYTES = 2**28
POSITION = "position"
READING = "reading"
OWN_NOTES = ("sent", "upload:", "home.turns")
"""Notes that are not shared: about single posts, which can be looked up in the chat, and reports that hosts repeat."""

log = logging.getLogger("codebutler.cluster")


class AcceptedEvent(Struct, frozen=True, kw_only=True, tag="taken", forbid_unknown_fields=True):
    """An event that a gateway accepted and has not settled."""

    event: Event
    request: Request
    received_at: datetime


class SharedNote(Struct, frozen=True, kw_only=True, tag="note", forbid_unknown_fields=True):
    """A note that all gateways share."""

    name: str
    value: str


class GatewayJournal(Journal):
    """The journal of a gateway that leads, with the same interface. Entering it reads what the previous gateway had
    accepted.

    ``is_held``: whether no other gateway can lead yet. ``path`` as in ``Journal.open``, which raises the same.
    """

    def __init__(self, bucket: KeyBucket, is_held: Callable[[], bool], path: Path, clock: Clock) -> None:
        super().__init__(path, journal_file.open_file(path, clock), clock)
        self._bucket = bucket
        self._is_held = is_held
        self._channel_locks: defaultdict[ConversationRef, asyncio.Lock] = defaultdict(asyncio.Lock)
        """A lock for each channel, so that events are stored in the order of the calls."""
        self._keys: dict[int, str] = {}
        """The key in the bucket of each unsettled entry, by ``seq``."""
        self._inherited: dict[str, AcceptedEvent] = {}
        self._position_s = 0.0
        self._gaps_open = asyncio.Event()
        self._changed_notes: dict[str, str] = {}
        self._notes_changed = asyncio.Event()
        self._settling_slots = asyncio.Semaphore(SETTLING_AT_ONCE)
        self._refusal = ""
        self._answers_again = asyncio.Event()
        self._loops = Tasks(_log_failure)
        self._settling = Tasks(_log_failure)

    async def __aenter__(self) -> GatewayJournal:
        while True:
            try:
                revision = await self._bucket.set(READING, "")
                values = await self._bucket.all(revision)
                break
            except BusError as error:
                log.warning("cannot read what the previous gateway accepted: %s", error)
                await self._clock.sleep(RETRY_S)
        await self._inherit(values)
        self._loops.start(self._share_notes(), name="notes")
        self._loops.start(self._keep_position(), name="position")
        return self

    async def _inherit(self, values: dict[str, str]) -> None:
        """Take over the previous gateway's position, notes and unsettled events. Raises StoreError."""
        for key, value in values.items():
            if key == POSITION:
                with suppress(ValueError):
                    self._position_s = float(value)
            elif key != READING and (found := _decode(value)) is not None:
                if isinstance(found, SharedNote):
                    await super().keep_note(found.name, found.value)
                else:
                    self._inherited[key] = found
        if self._position_s:
            await self._write("settle", journal_file.resume_at, self._position_s)

    # Events

    async def append(self, event: Event, request: Request) -> Entry | None:
        """As on one machine, but first on the servers' disks. Raises StoreError if they do not answer soon: the chat
        repeats the event."""
        key, received_at = _digest(event.key), self._clock.now()
        accepted = AcceptedEvent(event=event, request=request, received_at=received_at)
        with self._refusing():
            async with asyncio.timeout(ACCEPT_S) as limit, self._channel_locks[event.channel]:
                is_new = await self._bucket.create(key, _encode(accepted))
                if not is_new and not await self._is_open(key, accepted):
                    return None
                limit.reschedule(None)
                if not self._is_held():
                    # The gateway that leads now may not have seen it: it must come again.
                    raise StoreError("another gateway is active")
                entry = await super().append(event, request)
        if entry is not None:
            self._keys[entry.seq] = key
        elif is_new:
            self._start_settling(key)
        return entry

    async def _is_open(self, key: str, accepted: AcceptedEvent) -> bool:
        """Whether the bucket has the event unsettled, from an attempt whose answer was lost or from a gateway that lost
        its lease meanwhile. Then our file says whether it is known. Raises BusError if that is not decided yet."""
        if (found := await self._bucket.existing_value(key)) is None:
            return False
        if not isinstance(_decode(found), AcceptedEvent):
            await self._bucket.set(
                key, _encode(accepted)
            )  # a host made the server store something else there
        return True

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (BusError, TimeoutError) as error:
            why = "the NATS servers do not answer: messages are refused until they do"
            if not self._refusal:
                self._refusal = why
                self._loops.start(self._wait_for_servers(), name="NATS")
            raise StoreError(why) from error

    async def settle(self, seq: int) -> None:
        """As on one machine; the next gateway learns of it, too."""
        await super().settle(seq)
        if (key := self._keys.pop(seq, None)) is not None:
            self._start_settling(key)

    def _start_settling(self, key: str) -> None:
        self._settling.start(self._settle_on_servers(key), name="settling")

    async def _settle_on_servers(self, key: str) -> None:
        async with self._settling_slots:
            await retry_until_answered(self._clock, lambda: self._bucket.purge(key, SETTLED_KNOWN_S))

    async def pending(self) -> list[Entry]:
        """Events that we or earlier gateways accepted and nobody has settled, in the order they were accepted."""
        own_entries = {_digest(entry.event.key): entry for entry in await super().pending()}
        found: list[Entry] = []
        for key, accepted in self._inherited.items():
            entry = own_entries.pop(key, None)
            if entry is None and (entry := await super().append(accepted.event, accepted.request)) is None:
                self._start_settling(key)  # settled, but the servers did not learn of it
                continue
            self._keys[entry.seq] = key
            found.append(
                Entry(
                    entry.seq,
                    entry.channel,
                    accepted.event,
                    accepted.request,
                    received_at=accepted.received_at,
                )
            )
        self._inherited.clear()
        return [*await self._settle_unknown(own_entries), *found]

    async def _settle_unknown(self, own_entries: dict[str, Entry]) -> list[Entry]:
        """Entries of our file that were not inherited: settled by another gateway, unless the servers lost them."""
        found = []
        for key, entry in own_entries.items():
            accepted = AcceptedEvent(event=entry.event, request=entry.request, received_at=entry.received_at)
            if await self._is_unsettled(key, accepted):
                self._keys[entry.seq] = key
                found.append(entry)
            else:
                await super().settle(entry.seq)
        return found

    async def _is_unsettled(self, key: str, accepted: AcceptedEvent) -> bool:
        """Put the event into the bucket if it is missing there. False if it is settled."""

        async def begins() -> bool:
            return await self._bucket.create(key, _encode(accepted)) or await self._is_open(key, accepted)

        return await retry_until_answered(self._clock, begins)

    # Trouble

    @property
    def trouble(self) -> str:
        """Why nothing can be accepted; "" if it can."""
        return super().trouble or self._refusal

    async def news(self) -> str:
        """As on one machine; also when NATS answers again after events had to be refused."""
        messages: list[str] = []

        async def file() -> None:
            messages.append(await super(GatewayJournal, self).news())

        async def servers() -> None:
            await self._answers_again.wait()
            self._answers_again.clear()
            messages.append("the NATS servers answer again: fetching refused events from the chats")

        await first_of(file(), servers())
        return ". ".join(messages)

    async def _wait_for_servers(self) -> None:
        log.error(self._refusal)
        await retry_until_answered(self._clock, lambda: self._bucket.set(READING, ""))
        self._refusal = ""
        self._answers_again.set()

    # What the next gateway knows

    async def open_gaps(self, channels: Collection[ConversationRef], now: datetime) -> None:
        """For a channel that is new to this file, messages may be missed since the last gateway's position."""
        if self._position_s:
            since, self._position_s = self._position_s, 0.0
            await self._write("settle", journal_file.open_gaps, tuple(channels), since)
        await super().open_gaps(channels, now)
        self._gaps_open.set()

    async def _keep_position(self) -> None:
        """Store the time up to which every message has been accepted. It starts once the gaps since the last gateway
        are open, and never lies before the first gateway began: earlier messages are not for us."""
        await self._gaps_open.wait()
        started_s, was_refusing = 0.0, ""
        while True:
            with suppress(BusError, StoreError):
                now_s = self._clock.now().timestamp()
                oldest_s = await self._read(journal_file.oldest_gap)
                started_s = started_s or oldest_s or now_s
                position_s = max(started_s, min(oldest_s or now_s, now_s - OVERLAP_S))
                if not was_refusing and not self._refusal and self._is_held():  # else a gap is opened first
                    await self._bucket.set(POSITION, str(position_s))
            was_refusing = self._refusal
            await self._clock.sleep(POSITION_S)

    async def keep_note(self, name: str, value: str) -> None:
        """Stored here when this returns, and on the servers soon after. Raises StoreError."""
        await super().keep_note(name, value)
        if not name.startswith(OWN_NOTES):
            self._changed_notes[name] = value
            self._notes_changed.set()

    async def _share_notes(self) -> None:
        while True:
            await self._notes_changed.wait()
            self._notes_changed.clear()
            for name, value in list(self._changed_notes.items()):
                try:
                    await self._bucket.set(
                        f"note.{_digest(name)}", _encode(SharedNote(name=name, value=value))
                    )
                except BusError:
                    self._notes_changed.set()
                    await self._clock.sleep(RETRY_S)
                    break
                if self._changed_notes.get(name) == value:
                    del self._changed_notes[name]

    async def close(self) -> None:
        """Tell the servers what is settled, if possible, for the next gateway; then as on one machine."""
        if self._is_held():
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    while self._changed_notes:  # noqa: ASYNC110 - beside the loop that shares them
                        await asyncio.sleep(0.01)
        await self._loops.close(0)
        await self._settling.close(FLUSH_S if self._is_held() else 0)
        await super().close()


def _log_failure(name: str, error: BaseException) -> None:
    log.error("%s failed: %r", name, error)


def _digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:32]


def _encode(record: AcceptedEvent | SharedNote) -> str:
    return msgspec.json.encode(record).decode()


def _decode(value: str) -> AcceptedEvent | SharedNote | None:
    """None for a value that is not ours: a host can make the server store anything there."""
    try:
        return msgspec.json.decode(value, type=AcceptedEvent | SharedNote)
    except (msgspec.DecodeError, ValueError) as error:
        log.warning("cannot read a record of the gateways: %s", error)
        return None
