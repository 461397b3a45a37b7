"""Three servers: what is on their disks outlives any one of them, with its disk, and whoever leads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from nats.errors import Error as NatsError

from codebutler.cluster.bus import Bus
from codebutler.cluster.health import judge_servers, read_servers, read_streams
from codebutler.cluster.membership import LEADER_BUCKET, stream_in
from codebutler.domain.clock import SystemClock
from tests.e2e.small_disk import small_disk
from tests.natsserver import NatsCluster, NatsServer, bus, nats_cluster, nats_server, patiently, whole
from tests.programs import require
from tests.seam import DEADLINE_S, Gateway, Host, gateway, host, remote, until
from tests.workers.services import entry

MANY, LARGE_BYTES = 300, 100_000
SYNC_S = 0.02
LOOKS = 10
FULL = (
    "stores nothing, because its disk was full or its nats.conf lacks `jetstream`: see its log, free space, "
    "and restart it"
)
DISK = "1500m"
"""Streams reserve what they may need, of three quarters of the disk."""


@asynccontextmanager
async def served(servers: NatsCluster, ttl_s: float = 60) -> AsyncIterator[tuple[Gateway, Host]]:
    async with gateway(servers, ttl_s=ttl_s) as opened:
        opened.hosts.add(remote())
        async with host(servers) as here:
            yield opened, here


def deliver(opened: Gateway, first: int, last: int) -> None:
    for seq in range(first, last + 1):
        opened.hosts.deliver(entry(seq, f"message {seq}"))


async def all_came(here: Host, count: int) -> None:
    disk = here.spawner.disk()
    await until(lambda: len(disk.texts) == count, within_s=60)
    assert disk.texts == [f"message {number}" for number in range(1, count + 1)]


async def replicas(connected: Bus) -> dict[str, int]:
    return {each.name: each.replicas for each in await read_streams(connected._client)}


async def lacks(servers: NatsCluster, server: NatsServer) -> str:
    """What the server says it does not have."""
    said: dict[str, str] = {}
    async with servers.system() as system, asyncio.timeout(DEADLINE_S):
        while server.name not in said:
            said = {each.name: each.missing_data for each in await read_servers(system, SystemClock(), 3)}
    return said[server.name]


async def leader_of(servers: NatsCluster, stream: str) -> NatsServer:
    async with bus(servers) as connected:
        info = await connected._jetstream.stream_info(stream)
        assert info.cluster is not None
        return servers.named(info.cluster.leader or "")


async def test_everything_is_on_three_disks_and_any_of_them_may_die_or_be_wiped(tmp_path: Path) -> None:
    async with nats_cluster(tmp_path) as servers, served(servers) as (opened, here):
        deliver(opened, 1, 20)
        await all_came(here, 20)
        async with bus(servers) as connected:
            assert set((await replicas(connected)).values()) == {3}
        for number, server in enumerate(servers.servers):
            last = 20 + 40 * (number + 1)
            deliver(opened, last - 39, last - 20)
            await server.wipe()
            deliver(opened, last - 19, last)
            await all_came(here, last)
            await server.start()
            await servers.ready()
            await whole(servers)


async def test_disks_are_replaced_one_after_the_other_with_much_on_them(tmp_path: Path) -> None:
    """A stream's leader calls a copy current that was wiped a moment ago. That server itself does not."""
    async with nats_cluster(tmp_path) as servers, bus(servers) as connected:
        await connected.ensure_stream("CB_ONE", "cb.one.>", 2**28)
        for number in range(MANY):
            await connected.publish("cb.one.a", b"x" * LARGE_BYTES, str(number))
        for server in servers.servers:
            await server.wipe()
            await server.start()
            assert await lacks(servers, server)
            await whole(servers)
            assert not await lacks(servers, server)
        info = await patiently(lambda: connected._jetstream.stream_info("CB_ONE"))
        assert info.state.messages == MANY


async def test_the_server_that_leads_the_stream_is_killed_and_its_events_arrive(tmp_path: Path) -> None:
    async with nats_cluster(tmp_path) as servers, served(servers) as (opened, here):
        deliver(opened, 1, 20)
        await all_came(here, 20)
        leads = await leader_of(servers, stream_in("laptop"))
        deliver(opened, 21, 60)
        await leads.kill()
        deliver(opened, 61, 100)
        await all_came(here, 100)


async def test_the_leader_of_all_servers_is_killed_and_events_arrive_also_of_a_new_repository(
    tmp_path: Path,
) -> None:
    """The meta leader: it decides where streams and consumers are, so without another one nothing new can be made."""
    async with nats_cluster(tmp_path) as servers, served(servers) as (opened, here):
        deliver(opened, 1, 20)
        await all_came(here, 20)
        leads = await meta_leader(servers)
        deliver(opened, 21, 40)
        await leads.kill()
        deliver(opened, 41, 60)
        opened.hosts.add(remote("books", "C02"))
        opened.hosts.deliver(entry(61, "the first one", "C02"))
        await all_came(here, 60)
        await until(lambda: here.spawner.disk("books").texts == ["the first one"], within_s=60)
        assert await meta_leader(servers) is not leads


@pytest.mark.parametrize("leads", [True, False])
async def test_one_server_has_a_slow_disk(tmp_path: Path, leads: bool) -> None:
    """Each sync takes SYNC_S longer, as on a disk under load (with 0.15 s it leads nothing); reads stay fast.
    ``leads``: that server leads the host's stream and the gateway's lease."""
    servers = NatsCluster.of(tmp_path)
    slow, other, _ = servers.servers
    syncs, delay = "fsync,fdatasync", f"delay_enter={SYNC_S * 1e6:.0f}"
    tracing = (
        f"{require('strace')} -D -f -q -o /dev/null --seccomp-bpf -e trace={syncs} -e inject={syncs}:{delay}"
    )
    slow.within = tuple(tracing.split())
    try:
        await servers.start()
        async with served(servers, ttl_s=15) as (opened, here):
            deliver(opened, 1, 5)
            await all_came(here, 5)
            for stream in (stream_in("laptop"), f"KV_{LEADER_BUCKET}"):
                await let_lead(servers, slow if leads else other, stream)
            deliver(opened, 6, 25)
            await all_came(here, 25)
            assert opened.authority.is_held
    finally:
        await servers.kill()


async def test_the_disk_of_one_server_is_full(tmp_path: Path) -> None:
    """It leads what it can no longer write, and stops storing anything until it is started with room again."""
    servers = NatsCluster.of(tmp_path)
    full = servers.servers[0]
    full.store.mkdir()
    try:
        async with small_disk(full.store, DISK) as disk:
            full.within = disk.prefix
            await servers.start()
            async with served(servers, ttl_s=15) as (opened, here):
                deliver(opened, 1, 20)
                await all_came(here, 20)
                for stream in (stream_in("laptop"), f"KV_{LEADER_BUCKET}"):
                    await let_lead(servers, full, stream)
                deliver(opened, 21, 40)
                disk.fill()
                deliver(opened, 41, 80)
                await all_came(here, 80)
                assert opened.authority.is_held
                assert await faults(servers) == [("n1", FULL)]
                await full.kill()
                disk.free()
                await full.start()
                await whole(servers)
                deliver(opened, 81, 100)
                await all_came(here, 100)
    finally:
        await servers.kill()


async def faults(servers: NatsCluster) -> list[tuple[str, str]]:
    """What `doctor` says, once it finds something."""
    found: list[tuple[str, str]] = []
    async with servers.system() as system, asyncio.timeout(DEADLINE_S):
        while not found:
            told = judge_servers(await read_servers(system, SystemClock(), 3), 3)
            found = [(each.subject, each.text) for each in told if each.level == "FAIL"]
    return found


async def meta_leader(servers: NatsCluster) -> NatsServer:
    async with servers.system() as system, asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(NatsError):
                answer = await system.request("$SYS.REQ.SERVER.PING.JSZ", b"{}", timeout=2)
                if name := json.loads(answer.data)["data"].get("meta_cluster", {}).get("leader"):
                    return servers.named(name)
            await asyncio.sleep(0.1)


async def let_lead(servers: NatsCluster, server: NatsServer, stream: str) -> None:
    """A slow server follows late, so it is asked again, but not while others still vote for it."""
    wish = json.dumps({"placement": {"preferred": server.name}}).encode()
    async with bus(servers) as connected, asyncio.timeout(4 * DEADLINE_S):
        for looks in count():
            with suppress(NatsError):
                info = await connected._jetstream.stream_info(stream)
                if info.cluster is not None and info.cluster.leader == server.name:
                    return
                if looks % LOOKS == 0:
                    subject = f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}"
                    await connected._client.request(subject, wish, timeout=2)
            await asyncio.sleep(0.5)


async def test_streams_made_while_a_server_was_missing_are_moved_to_three(tmp_path: Path) -> None:
    servers = NatsCluster.of(tmp_path)
    *two, third = servers.servers
    try:
        await asyncio.gather(*(each.start() for each in two))
        await servers.ready()
        async with bus(servers) as connected:
            await connected.ensure_stream("CB_ONE", "cb.one.>", 2**20)
            await connected.publish("cb.one.a", b"before", "1")
            assert await replicas(connected) == {"KV_CB_READY": 1, "CB_ONE": 1}
        await third.start()
        await whole(servers)
        await two[0].kill()
        await servers.ready()
        async with bus(servers) as connected:
            info = await patiently(lambda: connected._jetstream.stream_info("CB_ONE"))
            assert info.state.messages == 1
    finally:
        await servers.kill()


async def test_a_stream_stays_on_three_when_there_is_one_server_for_a_while(tmp_path: Path) -> None:
    async with nats_cluster(tmp_path) as servers, bus(servers) as connected:
        await connected.ensure_stream("CB_ONE", "cb.one.>", 2**20)
        await servers.servers[0].kill()
        await servers.ready()
        await connected.ensure_stream("CB_ONE", "cb.one.>", 2**21)
        assert (await replicas(connected))["CB_ONE"] == 3


async def test_one_server_keeps_one_of_each(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, bus(server) as connected:
        await connected.ensure_stream("CB_ONE", "cb.one.>", 2**20)
        assert await connected.streams.spread() == 0
        assert await replicas(connected) == {"CB_ONE": 1}
