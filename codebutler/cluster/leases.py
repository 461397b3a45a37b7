"""Who leads, and which process is a host: each has an epoch, the revision of a key in NATS that only one can write.

A gateway leads while it renews its key in time. A host's key changes only when another process becomes that host, so
that a host keeps its epoch while nobody leads. All spans count the time that a machine sleeps. And the notes that all
gateways share, each with the epoch of the gateway that stored it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from codebutler.cluster.buckets import BusError, KeyBucket, retry_until_answered
from codebutler.cluster.bus import Bus
from codebutler.cluster.membership import GATEWAY, HOSTS_BUCKET, LEADER_BUCKET, NOTES_BUCKET
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, StoreError

LEADER_TTL_S = 6.0
RENEW_S = 1.5
POLL_S = 1.0
MARGIN_S = 1.0
UNANSWERED = 2
"""After this many unanswered requests we try another server: ours may be cut off from the others."""
STUCK_S = 20.0
"""A gateway whose event loop hangs for this long no longer leads, although another thread still renews its lease."""
HOST_TTL_S = 10.0
HELD_ELSEWHERE = "another process runs as this host: stop it, or wait until it has been silent for {0:g} s"
ATTEMPTS = 5
WAIT_S = 2.0


class LeaseLostError(CodeButlerError):
    """Another process holds the lease now."""


class Leadership:
    """The gateway's lease; ``instance`` names this process. It may be acquired and renewed in a separate event loop:
    ``epoch`` and ``is_held`` may be read in any thread."""

    def __init__(self, bus: Bus, bucket: KeyBucket, instance: str, clock: Clock, ttl_s: float) -> None:
        self.epoch = 0
        self._bus = bus
        self._bucket = bucket
        self.instance = instance
        self._clock = clock
        self._ttl_s = ttl_s
        self._revision = 0
        self._until_s = 0.0
        self._alive_s: float | None = None
        self.reconnections = 0
        """How often NATS did not answer, so that another server was tried."""

    @classmethod
    async def candidate(
        cls, bus: Bus, instance: str, clock: Clock, ttl_s: float = LEADER_TTL_S
    ) -> Leadership:
        """A lease that is not held yet. Waits until NATS answers."""
        while True:
            try:
                return cls(bus, await bus.bucket(LEADER_BUCKET, ttl_s), instance, clock, ttl_s)
            except BusError:
                await bus.reconnect()
                await clock.sleep(POLL_S)

    @property
    def is_held(self) -> bool:
        """Whether nobody else can lead yet."""
        return self._clock.boottime() < self._until_s

    def report_alive(self) -> None:
        """The gateway's event loop still runs. After the first call, the lease is lost unless this is called
        regularly."""
        self._alive_s = self._clock.boottime()

    async def acquire(self) -> None:
        """Wait until no gateway leads, then take the lease."""
        for attempt in count(1):
            requested_s = self._clock.boottime()
            try:
                if (revision := await self._write(None)) is not None:
                    self.epoch = self._revision = revision
                    self._until_s = requested_s + self._ttl_s - MARGIN_S
                    return
            except BusError:
                if attempt % UNANSWERED == 0:
                    await self._reconnect()
            await self._clock.sleep(POLL_S)

    async def renew_until_lost(self) -> None:
        """Renew it until that fails for too long. Always raises LeaseLostError."""
        unanswered = 0
        while True:
            await self._clock.sleep(RENEW_S)
            requested_s = self._clock.boottime()
            if requested_s >= self._until_s:
                raise LeaseLostError("this gateway could not renew its lease in time")
            if self._alive_s is not None and requested_s - self._alive_s > STUCK_S:
                raise LeaseLostError(f"this gateway was blocked for {STUCK_S:g} s")
            try:
                async with asyncio.timeout(min(RENEW_S, self._until_s - requested_s)):
                    revision = await self._write(self._revision)
            except (BusError, TimeoutError):
                unanswered += 1
                if unanswered % UNANSWERED == 0:
                    await self._reconnect()
                continue
            unanswered = 0
            if revision is None:
                self._until_s = 0.0
                raise LeaseLostError("another gateway is active")
            self._revision, self._until_s = revision, requested_s + self._ttl_s - MARGIN_S

    async def _reconnect(self) -> None:
        self.reconnections += 1
        await self._bus.reconnect()

    async def _write(self, last: int | None) -> int | None:
        """As ``KeyBucket.put``. An earlier attempt may have succeeded without our knowing: then it is written again,
        because the lease's time counts from when the servers got it, which may be long ago. Raises BusError also while
        that attempt is on too few servers."""
        revision = await self._bucket.put_if_latest(GATEWAY, self.instance, last)
        if revision is None and (found := await self._bucket.get(GATEWAY)) and found[0] == self.instance:
            revision = await self._bucket.put_if_latest(GATEWAY, self.instance, found[1])
            if revision is None:
                raise BusError("not on enough servers yet")
        return revision

    async def release(self) -> None:
        """Let a standby lead at once."""
        if self.is_held:
            self._until_s = 0.0
            await self._bucket.delete(GATEWAY, self._revision)


class Holder(Struct, frozen=True):
    """The process that acts as a host; it was last heard from at ``seen_s``. ``has_left``: it said then that it
    ends."""

    instance: str
    epoch: int
    seen_s: float
    has_left: bool = False


class HostLeases:
    """The hosts' leases, kept by the gateway that leads. A new leader does not know when the one before last heard from
    a host: it counts from its own start."""

    def __init__(self, bucket: KeyBucket, clock: Clock, ttl_s: float = HOST_TTL_S) -> None:
        self._bucket = bucket
        self._clock = clock
        self._ttl_s = ttl_s
        self._began_s = clock.boottime()
        self._holders: dict[str, Holder] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @classmethod
    async def open(cls, bus: Bus, clock: Clock) -> HostLeases:
        """The leases as stored. Raises BusError."""
        return cls(await bus.bucket(HOSTS_BUCKET), clock)

    async def grant(self, host: str, instance: str) -> int:
        """The host's epoch, granted to its process ``instance``, which has just reported. Raises LeaseLostError if
        another process is that host, and BusError."""
        async with self._locks.setdefault(host, asyncio.Lock()):
            holder, now_s = await self._holder(host), self._clock.boottime()
            if holder is None or holder.instance != instance:
                if holder is not None and not holder.has_left and now_s - holder.seen_s < self._ttl_s:
                    raise LeaseLostError(HELD_ELSEWHERE.format(self._ttl_s))
                epoch = await self._bucket.put_if_latest(host, instance, holder.epoch if holder else None)
                if epoch is None:
                    self._holders.pop(host, None)
                    raise LeaseLostError("another process has just started as this host")
                holder = Holder(instance, epoch, now_s)
            self._holders[host] = Holder(instance, holder.epoch, now_s)
            return holder.epoch

    def mark_left(self, host: str) -> None:
        """The host's process has ended: the next one need not wait."""
        if (holder := self._holders.get(host)) is not None:
            self._holders[host] = replace(holder, has_left=True)

    async def epoch_of(self, host: str) -> int:
        """The latest epoch of the host; 0 if it never had one. Raises BusError."""
        holder = await self._holder(host)
        return holder.epoch if holder else 0

    def silent_s(self, host: str) -> float:
        """For how long nothing was heard from the host."""
        holder = self._holders.get(host)
        return self._clock.boottime() - max(self._began_s, holder.seen_s if holder else self._began_s)

    def is_away(self, host: str) -> bool:
        """Whether it has been silent for long, or said that it ends. A new leader gives it time to report."""
        holder = self._holders.get(host)
        return self.silent_s(host) >= self._ttl_s or (holder is not None and holder.has_left)

    def is_awake(self, host: str) -> bool:
        """Whether it was heard from recently."""
        holder = self._holders.get(host)
        if holder is None or holder.has_left or holder.seen_s <= self._began_s:
            return False
        return self.silent_s(host) < self._ttl_s

    async def _holder(self, host: str) -> Holder | None:
        if host not in self._holders and (found := await self._bucket.get(host)) is not None:
            instance, revision = found
            self._holders[host] = Holder(instance, revision, self._began_s)
        return self._holders.get(host)


class Epochs(Struct, frozen=True):
    """The epochs that a gateway's messages carry: of its own lease, and of those that it has granted to hosts."""

    leadership: Leadership
    hosts: HostLeases

    @property
    def epoch(self) -> int:
        """The gateway's epoch."""
        return self.leadership.epoch

    @property
    def is_held(self) -> bool:
        """Whether no other gateway can lead yet."""
        return self.leadership.is_held


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
    async def open(cls, bus: Bus, leadership: Leadership, clock: Clock) -> SharedNotes:
        """The notes, once NATS answers."""
        return cls(await retry_until_answered(clock, lambda: bus.bucket(NOTES_BUCKET)), leadership, clock)

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
                    revision = await self._bucket.put_if_latest(
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
