"""What a cluster's NATS servers report about themselves and their streams. Raises CodeButlerError.

Notes that all gateways share, kept in NATS, so that the next leader continues where the one before stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as NatsError

from codebutler.cluster.buckets import BusError, KeyBucket
from codebutler.cluster.bus import Bus
from codebutler.cluster.leases import LOOK_S, Leadership
from codebutler.cluster.membership import NOTES_BUCKET
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, StoreError

ANSWERS_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server reports about itself. ``ahead_s``: how far its clock is ahead of this machine's. ``stores``: it
    keeps streams at all; ``is_synced``: it acknowledges a message once it is on disk. ``lacks``: the data that it
    should have and does not have yet, "" if it has everything. A stream's leader may call a copy current that was wiped
    a moment ago; the server with that copy does not."""

    name: str
    version: str
    ahead_s: float
    max_payload_bytes: int
    stores: bool = True
    is_synced: bool
    lacks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts:
    """``replicas``: on how many servers it should be; ``behind``: the servers that do not have all of it now, "another
    server" for each without a name."""

    name: str
    replicas: int
    has_leader: bool = True
    behind: tuple[str, ...] = ()


class _Identity(Struct):
    name: str
    ver: str
    time: datetime


class _JetStreamSettings(Struct):
    sync_always: bool = False


class _JetStreamState(Struct):
    config: _JetStreamSettings | None = None


class _State(Struct):
    max_payload: int = 0
    jetstream: _JetStreamState | None = None


class _ServerAnswer(Struct):
    """Source: nats-server 2.15.1, $SYS.REQ.SERVER.PING.VARZ."""

    server: _Identity
    data: _State


class _Health(Struct):
    status: str = ""
    error: str = ""


class _HealthAnswer(Struct):
    """Source: nats-server 2.15.1, $SYS.REQ.SERVER.PING.HEALTHZ."""

    server: _Identity
    data: _Health


class _StreamSettings(Struct):
    name: str
    num_replicas: int = 1


class _Peer(Struct):
    name: str
    current: bool = False
    offline: bool = False


class _Group(Struct):
    leader: str = ""
    replicas: tuple[_Peer, ...] = ()


class _StreamState(Struct):
    config: _StreamSettings
    cluster: _Group | None = None


class _Refusal(Struct):
    description: str = ""


class _StreamList(Struct):
    """Source: nats-server 2.15.1, $JS.API.STREAM.LIST."""

    error: _Refusal | None = None
    total: int = 0
    streams: tuple[_StreamState, ...] = ()


async def read_servers(system: Client, clock: Clock, wanted: int) -> tuple[ServerFacts, ...]:
    """What each server reports, by name; returns after ``wanted`` answers, or ANSWERS_S. ``system``: a connection that
    may ask servers. Raises CodeButlerError."""
    try:
        states = await _asked(system, clock, "VARZ", wanted)
        healths = await _asked(system, clock, "HEALTHZ", len(states))
        lacks = {health.server.name: _lacks(health.data) for health in map(_health, healths)}
        found = [_server(body, here, lacks) for body, here in states.items()]
    except (NatsError, OSError, msgspec.DecodeError) as error:
        raise CodeButlerError(f"the NATS servers do not answer: {error or type(error).__name__}") from error
    return tuple(sorted(found, key=lambda each: each.name))


async def _asked(system: Client, clock: Clock, what: str, wanted: int) -> dict[bytes, datetime]:
    """Each server's answer, with the time here when it was given."""
    inbox, found = system.new_inbox(), dict[bytes, datetime]()
    subscription = await system.subscribe(inbox)
    asked_at = clock.now()
    await system.publish(f"$SYS.REQ.SERVER.PING.{what}", b"{}", reply=inbox)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWERS_S):
            while len(found) < wanted:
                message = await subscription.next_msg(timeout=ANSWERS_S)
                if not message.data:
                    break  # the server's own answer: we are not allowed to ask
                found[message.data] = asked_at + (clock.now() - asked_at) / 2
    await subscription.unsubscribe()
    return found


def _health(body: bytes) -> _HealthAnswer:
    return msgspec.json.decode(body, type=_HealthAnswer)


def _lacks(health: _Health) -> str:
    return "" if health.status == "ok" else health.error or health.status


def _server(body: bytes, here: datetime, lacks: Mapping[str, str]) -> ServerFacts:
    answer = msgspec.json.decode(body, type=_ServerAnswer)
    settings = answer.data.jetstream.config if answer.data.jetstream is not None else None
    return ServerFacts(
        name=answer.server.name,
        version=answer.server.ver,
        ahead_s=(answer.server.time - here).total_seconds(),
        max_payload_bytes=answer.data.max_payload,
        stores=settings is not None,
        is_synced=settings is not None and settings.sync_always,
        lacks=lacks.get(answer.server.name, "it does not say which"),
    )


async def read_streams(client: Client) -> tuple[StreamFacts, ...]:
    """All streams, and which servers have them. Raises CodeButlerError."""
    found: list[_StreamState] = []
    try:
        while True:
            asked = msgspec.json.encode({"offset": len(found)})
            answer = await client.request("$JS.API.STREAM.LIST", asked, timeout=ANSWERS_S)
            page = msgspec.json.decode(answer.data, type=_StreamList)
            if page.error is not None:
                raise CodeButlerError(f"the streams cannot be listed: {page.error.description}")
            found += page.streams
            if not page.streams or len(found) >= page.total:
                break
    except (NatsError, OSError, msgspec.DecodeError) as error:
        raise CodeButlerError(f"the streams cannot be listed: {error or type(error).__name__}") from error
    return tuple(_stream(each) for each in found)


def _stream(stream: _StreamState) -> StreamFacts:
    group = stream.cluster or _Group(leader="the only server")
    behind = sorted(peer.name for peer in group.replicas if peer.offline or not peer.current)
    # Its leader does not list a server that has not begun to copy it.
    unlisted = stream.config.num_replicas - 1 - len(group.replicas)
    return StreamFacts(
        name=stream.config.name,
        replicas=stream.config.num_replicas,
        has_leader=bool(group.leader),
        behind=(*behind, *["another server"] * unlisted),
    )


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
