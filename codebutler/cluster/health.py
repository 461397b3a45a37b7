"""Checks for `codebutler doctor`: whether a cluster's NATS servers store data as reliably as the gateway promises. The
``judge_…`` functions are pure."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from codebutler.cluster.authority import read_authority
from codebutler.cluster.connection import connected_client
from codebutler.cluster.membership import SAFE, is_host, read_membership
from codebutler.cluster.readings import ServerFacts, StreamFacts, read_servers, read_streams
from codebutler.cluster.server import objection
from codebutler.config.paths import Home
from codebutler.domain.clock import Clock
from codebutler.domain.errors import CodeButlerError, ConfigError
from codebutler.protocol.messages import Finding, fail, ok, warn

PATIENCE_S = 10.0
"""For a connection, and for the servers to choose a leader."""
AREA = "cluster"
CLOCK_S = 2.0
"""Why clocks matter: leases use the servers' time, messages the gateway's."""


async def examine_cluster(home: Home, clock: Clock) -> AsyncIterator[Finding]:
    """Every finding about the cluster that ``home`` belongs to. Only a gateway with the cluster's keys may ask its
    servers for their settings."""
    try:
        if is_host(home):
            membership = read_membership(home, gateway=False)
            async with connected_client(membership, clock, PATIENCE_S):
                found = [ok(AREA, membership.name, "the NATS servers know this host")]
        else:
            found = await _gateways(home, clock)
    except CodeButlerError as error:
        found = [fail(AREA, "servers", str(error))]
    for each in found:
        yield each


async def _gateways(home: Home, clock: Clock) -> list[Finding]:
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
        system = authority.of_system(int(clock.now().timestamp()))
        async with connected_client(system, clock, PATIENCE_S) as (client, _):
            answers = await read_servers(client, clock, len(system.servers))
        found += judge_servers(answers, len(system.servers))
    async with connected_client(membership, clock, PATIENCE_S) as (client, _):
        streams = await read_streams(client)
    return [*found, *judge_streams(streams, membership.copies, len(membership.servers))]


def judge_servers(found: Sequence[ServerFacts], wanted: int) -> Iterator[Finding]:
    """The findings about the servers; ``wanted``: how many there should be. Pure."""
    if len(found) < wanted:
        names = ", ".join(each.name for each in found) or "none"
        yield warn(
            AREA, "servers", f"{len(found)} of {wanted} answer ({names}): start the others, or see their logs"
        )
    for each in found:
        faults = list(_faults(each))
        yield from faults or (ok(AREA, each.name, f"nats-server {each.version}, syncs each message"),)


def _faults(server: ServerFacts) -> Iterator[Finding]:
    numbers = [int(part) for part in server.version.partition("-")[0].split(".") if part.isdigit()]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    if why := objection((major, minor, patch), server.max_payload_bytes):
        yield fail(AREA, server.name, why)
    if not server.stores:
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
    if server.stores and server.lacks:
        yield warn(
            AREA,
            server.name,
            f"does not have all data yet ({server.lacks}): wait until it has, and stop no other server",
        )
    if abs(server.ahead_s) > CLOCK_S:
        way = "ahead of" if server.ahead_s > 0 else "behind"
        yield warn(
            AREA,
            server.name,
            f"its clock is {abs(server.ahead_s):.0f} s {way} this machine's: synchronise both with NTP "
            "(`timedatectl set-ntp true`)",
        )


def judge_streams(found: Sequence[StreamFacts], replicas: int, servers: int) -> Iterator[Finding]:
    """The findings about the streams; ``replicas`` and ``servers``: how many copies and servers cluster.json names.
    Pure."""
    if servers >= SAFE > replicas:
        yield warn(
            AREA,
            "replicas",
            f'everything is kept on {replicas} of {servers} servers: set "replicas": {SAFE} in cluster.json and '
            "restart the gateway",
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
            AREA,
            stream.name,
            "accepts nothing, because too few of its servers are up: start the others",
        )
    elif stream.behind:
        yield warn(
            AREA,
            stream.name,
            f"is not complete on {', '.join(stream.behind)}: start that server, or wait until it has caught up",
        )
