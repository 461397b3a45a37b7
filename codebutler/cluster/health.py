"""What a cluster's NATS servers report about themselves and their streams, and the checks for `codebutler doctor`:
whether they store data as reliably as the gateway promises. The ``judge_…`` functions are pure."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js import api

from codebutler.cluster.authority import read_authority
from codebutler.cluster.connection import connected_client
from codebutler.cluster.membership import USUAL_REPLICAS, is_host, read_membership
from codebutler.cluster.server import server_problem
from codebutler.cluster.streams import all_streams
from codebutler.config.paths import Home
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.protocol.messages import Finding, fail, ok, warn

ANSWERS_S = 3.0
PATIENCE_S = 10.0
"""For a connection, and for the servers to choose a leader."""
AREA = "cluster"
CLOCK_TOLERANCE_S = 2.0
"""Why clocks matter: leases use the servers' time, messages the gateway's."""


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What a server reports about itself. ``clock_ahead_s``: how far its clock is ahead of this machine's.
    ``has_jetstream``: it keeps streams at all; ``is_synced``: it acknowledges a message once it is on disk.
    ``missing_data``: the data that it should have and does not have yet, "" if it has everything. A stream's leader may
    call a copy current that was wiped a moment ago; the server with that copy does not."""

    name: str
    version: str
    clock_ahead_s: float
    max_payload_bytes: int
    has_jetstream: bool = True
    is_synced: bool
    missing_data: str = ""


class StreamFacts(Struct, frozen=True, kw_only=True):
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

    @property
    def missing_data(self) -> str:
        return "" if self.status == "ok" else self.error or self.status


class _HealthAnswer(Struct):
    """Source: nats-server 2.15.1, $SYS.REQ.SERVER.PING.HEALTHZ."""

    server: _Identity
    data: _Health


async def read_servers(system: Client, clock: Clock, expected: int) -> tuple[ServerFacts, ...]:
    """What each server reports, by name; returns after ``expected`` answers, or ANSWERS_S. ``system``: a connection
    that may ask servers. Raises CodeButlerError."""
    try:
        states = await _ping_servers(system, clock, "VARZ", expected)
        healths = await _ping_servers(system, clock, "HEALTHZ", len(states))
        answers = [msgspec.json.decode(body, type=_HealthAnswer) for body in healths]
        missing = {each.server.name: each.data.missing_data for each in answers}
        found = [_server(body, answered_at, missing) for body, answered_at in states.items()]
    except (NatsError, OSError, msgspec.DecodeError) as error:
        raise CodeButlerError(f"the NATS servers do not answer: {error or type(error).__name__}") from error
    return tuple(sorted(found, key=lambda each: each.name))


async def _ping_servers(system: Client, clock: Clock, what: str, expected: int) -> dict[bytes, datetime]:
    """Each server's answer, with the time here when it was given."""
    inbox, found = system.new_inbox(), dict[bytes, datetime]()
    subscription = await system.subscribe(inbox)
    requested_at = clock.now()
    await system.publish(f"$SYS.REQ.SERVER.PING.{what}", b"{}", reply=inbox)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ANSWERS_S):
            while len(found) < expected:
                message = await subscription.next_msg(timeout=ANSWERS_S)
                if not message.data:
                    break  # the server's own answer: we are not allowed to ask
                found[message.data] = requested_at + (clock.now() - requested_at) / 2
    await subscription.unsubscribe()
    return found


def _server(body: bytes, answered_at: datetime, missing: Mapping[str, str]) -> ServerFacts:
    answer = msgspec.json.decode(body, type=_ServerAnswer)
    settings = answer.data.jetstream.config if answer.data.jetstream is not None else None
    return ServerFacts(
        name=answer.server.name,
        version=answer.server.ver,
        clock_ahead_s=(answer.server.time - answered_at).total_seconds(),
        max_payload_bytes=answer.data.max_payload,
        has_jetstream=settings is not None,
        is_synced=settings is not None and settings.sync_always,
        missing_data=missing.get(answer.server.name, "it does not say which"),
    )


async def read_streams(client: Client) -> tuple[StreamFacts, ...]:
    """All streams, and which servers have them. Raises CodeButlerError."""
    return tuple(map(_stream, await all_streams(client)))


def _stream(stream: api.StreamInfo) -> StreamFacts:
    group = stream.cluster or api.ClusterInfo(leader="the only server")
    peers, copies = group.replicas or [], stream.config.num_replicas or 1
    behind = sorted(peer.name or "" for peer in peers if peer.offline or not peer.current)
    # Its leader does not list a server that has not begun to copy it.
    unlisted = copies - 1 - len(peers)
    return StreamFacts(
        name=stream.config.name or "",
        replicas=copies,
        has_leader=bool(group.leader),
        behind=(*behind, *["another server"] * unlisted),
    )


async def examine_cluster(home: Home, clock: Clock) -> AsyncIterator[Finding]:
    """Every finding about the cluster that ``home`` belongs to. Only a gateway with the cluster's keys may ask its
    servers for their settings."""
    try:
        if is_host(home):
            membership = read_membership(home, gateway=False)
            async with connected_client(membership, clock, PATIENCE_S):
                found = [ok(AREA, membership.name, "the NATS servers know this host")]
        else:
            found = await _examine_gateway(home, clock)
    except CodeButlerError as error:
        found = [fail(AREA, "servers", str(error))]
    for each in found:
        yield each


async def _examine_gateway(home: Home, clock: Clock) -> list[Finding]:
    membership = read_membership(home, gateway=True)
    found: list[Finding] = []
    try:
        authority = read_authority(home)
    except ConfigError:
        found.append(
            warn(
                AREA,
                "servers",
                "their settings can be checked only at the gateway where the cluster was created",
            )
        )
    else:
        system = authority.system_membership(int(clock.now().timestamp()))
        async with connected_client(system, clock, PATIENCE_S) as (client, _):
            answers = await read_servers(client, clock, len(system.servers))
        found += judge_servers(answers, len(system.servers))
    async with connected_client(membership, clock, PATIENCE_S) as (client, _):
        streams = await read_streams(client)
    return [*found, *judge_streams(streams, membership.copies, len(membership.servers))]


def judge_servers(found: Sequence[ServerFacts], expected: int) -> Iterator[Finding]:
    """The findings about the servers; ``expected``: how many there should be. Pure."""
    if len(found) < expected:
        names = ", ".join(each.name for each in found) or "none"
        yield warn(
            AREA,
            "servers",
            f"{len(found)} of {expected} answer ({names}): start the others, or see their logs",
        )
    for each in found:
        faults = list(_faults(each))
        yield from faults or (ok(AREA, each.name, f"nats-server {each.version}, syncs each message"),)


def _faults(server: ServerFacts) -> Iterator[Finding]:
    numbers = [int(part) for part in server.version.partition("-")[0].split(".") if part.isdigit()]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    if why := server_problem((major, minor, patch), server.max_payload_bytes):
        yield fail(AREA, server.name, why)
    if not server.has_jetstream:
        yield fail(
            AREA,
            server.name,
            "stores nothing, because its disk was full or its nats.conf lacks `jetstream`: see its log, free space, "
            "and restart it",
        )
    elif not server.is_synced:
        yield fail(
            AREA,
            server.name,
            "acknowledges messages before they are on its disk: set `sync_interval: always` in `jetstream` of its "
            "nats.conf and restart it",
        )
    if server.has_jetstream and server.missing_data:
        yield warn(
            AREA,
            server.name,
            f"does not have all data yet ({server.missing_data}): wait until it has, and stop no other server",
        )
    if abs(server.clock_ahead_s) > CLOCK_TOLERANCE_S:
        direction = "ahead of" if server.clock_ahead_s > 0 else "behind"
        yield warn(
            AREA,
            server.name,
            f"its clock is {abs(server.clock_ahead_s):.0f} s {direction} this machine's: synchronise both with NTP "
            "(`timedatectl set-ntp true`)",
        )


def judge_streams(found: Sequence[StreamFacts], replicas: int, servers: int) -> Iterator[Finding]:
    """The findings about the streams; ``replicas`` and ``servers``: how many copies and servers cluster.json names.
    Pure."""
    if servers >= USUAL_REPLICAS > replicas:
        yield warn(
            AREA,
            "replicas",
            f'everything is kept on {replicas} of {servers} servers: set "replicas": {USUAL_REPLICAS} in '
            "cluster.json and restart the gateway",
        )
    if not found:
        yield warn(AREA, "streams", "none yet: `codebutler gateway` creates them when it starts")
        return
    faults = [fault for each in found for fault in _stream_faults(each, replicas)]
    yield from faults or (
        ok(AREA, "streams", f"{len(found)}, each complete on {replicas} of {servers} servers"),
    )


def _stream_faults(stream: StreamFacts, replicas: int) -> Iterator[Finding]:
    if stream.replicas < replicas:
        yield fail(
            AREA,
            stream.name,
            f"is kept on {stream.replicas} of {replicas} servers: restart the gateway, or run "
            f"`nats stream edit {stream.name} --replicas {replicas}`",
        )
    if not stream.has_leader:
        yield fail(
            AREA, stream.name, "accepts nothing, because too few of its servers are up: start the others"
        )
    elif stream.behind:
        yield warn(
            AREA,
            stream.name,
            f"is not complete on {', '.join(stream.behind)}: start that server, or wait until it has caught up",
        )
