"""Notes that all gateways share, kept in NATS, so that the next leader continues where the one before stopped."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress

from codebutler.cluster.buckets import BusError, KeyBucket
from codebutler.cluster.bus import Bus
from codebutler.cluster.leases import LOOK_S, Leadership
from codebutler.cluster.subjects import NOTES_BUCKET
from codebutler.domain.clock import Clock
from codebutler.domain.errors import StoreError

ATTEMPTS = 5
WAIT_S = 2.0


class SharedNotes:
    """Implements ``Notes``. Each note carries the epoch of the gateway that stored it: an earlier gateway cannot
    replace a later one's."""

    def __init__(self, bucket: KeyBucket, leadership: Leadership, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._leadership = leadership
        self._revisions: dict[str, int | None] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    @classmethod
    async def opened(cls, bus: Bus, leadership: Leadership, clock: Clock) -> SharedNotes:
        """The notes, once NATS answers."""
        while True:
            try:
                return cls(await bus.bucket(NOTES_BUCKET), leadership, clock)
            except BusError:
                await clock.sleep(LOOK_S)

    async def note(self, name: str) -> str:
        """The note of that name; "" if there is none. Waits for NATS longer than a lease lasts. Raises StoreError."""
        async with self._locks[name]:
            for _ in range(ATTEMPTS):
                with suppress(StoreError):
                    return (await self._read(name))[1]
                await self._clock.sleep(WAIT_S)
            return (await self._read(name))[1]

    async def keep_note(self, name: str, value: str) -> None:
        """Store a note, replacing an earlier one. Raises StoreError, also if another gateway has led since."""
        epoch = self._leadership.epoch
        async with self._locks[name]:
            for _ in range(ATTEMPTS):
                if name not in self._revisions and (await self._read(name))[0] > epoch:
                    raise StoreError("another gateway is active")
                try:
                    revision = await self._bucket.put(
                        _key(name), f"{epoch} {value}", self._revisions.pop(name)
                    )
                except BusError as error:
                    raise StoreError("NATS does not answer") from error
                if revision is not None:
                    self._revisions[name] = revision
                    return
        raise StoreError("another process keeps changing this note")

    async def _read(self, name: str) -> tuple[int, str]:
        """(epoch of the gateway that stored it, its value)"""
        try:
            found = await self._bucket.get(_key(name))
        except BusError as error:
            raise StoreError("NATS does not answer") from error
        self._revisions[name] = found[1] if found else None
        epoch, _, value = found[0].partition(" ") if found else ("0", "", "")
        return int(epoch), value


def _key(name: str) -> str:
    """The name in the characters that a key may have."""
    return name.encode().hex()
