"""Servers that do not hear each other: events go on, once each and in order. In network namespaces, as root."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.cluster.bus import Bus
from codebutler.cluster.membership import NOTES_BUCKET, ClusterMembership, stream_in
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import StoreError
from codebutler.parent.gateway import keep_connected
from codebutler.platform.tasks import beside
from tests.integration.cluster.test_cluster_nodes import leader_of
from tests.natsserver import NatsCluster, NatsServer
from tests.netnodes import apart
from tests.programs import require
from tests.seam import gateway, host, remote, until
from tests.workers.services import entry

EACH = 30

pytestmark = pytest.mark.root


async def test_each_pair_of_servers_is_cut_apart(tmp_path: Path) -> None:
    require("nats-server")
    async with apart(tmp_path) as (servers, network), gateway(servers, ttl_s=60) as opened:
        opened.hosts.add(remote())
        async with host(servers) as here:
            disk, count = here.spawner.disk(), 0
            for pair in ((1, 2), (1, 3), (2, 3)):
                network.cut(*pair)
                for _ in range(EACH):
                    count += 1
                    opened.hosts.deliver(entry(count, f"message {count}"))
                await until(lambda: len(disk.texts) == count, within_s=60)  # noqa: B023 - awaited here
                network.mend(*pair)
            assert disk.texts == [f"message {number}" for number in range(1, count + 1)]


@pytest.mark.parametrize("alone", [1, 2, 3])
async def test_a_server_is_cut_off_from_both_others(tmp_path: Path, alone: int) -> None:
    """Whoever is connected to it takes another one."""
    require("nats-server")
    others = [number for number in (1, 2, 3) if number != alone]
    async with apart(tmp_path) as (servers, network), gateway(servers, ttl_s=60) as opened:
        opened.hosts.add(remote())
        async with host(servers) as here:
            disk = here.spawner.disk()
            opened.hosts.deliver(entry(1, "message 1"))
            await until(lambda: len(disk.texts) == 1)
            for other in others:
                network.cut(alone, other)
            for number in range(2, EACH + 1):
                opened.hosts.deliver(entry(number, f"message {number}"))
            await until(lambda: len(disk.texts) == EACH, within_s=90)
            for other in others:
                network.mend(alone, other)
            assert disk.texts == [f"message {number}" for number in range(1, EACH + 1)]


class OnOne:
    """Everything is kept by one of the servers: whoever cannot reach that one has no other leader to wait for."""

    def __init__(self, servers: NatsCluster) -> None:
        self._servers = servers

    def membership(self, name: str) -> ClusterMembership:
        return replace(self._servers.membership(name), replicas=1)


async def connect_elsewhere(here: Bus, server: NatsServer) -> None:
    """To another server than that one."""
    await until(lambda: here._client.is_connected)
    while (url := here._client.connected_url) is None or url.hostname == server.address:
        await here.reconnect()
        await until(lambda: here._client.is_connected)


def number_of(servers: NatsCluster, here: Bus) -> int:
    """Of the server it is connected to."""
    url = here._client.connected_url
    assert url is not None
    (found,) = [number for number, each in enumerate(servers.servers, 1) if each.address == url.hostname]
    return found


@pytest.mark.parametrize("who", ["gateway", "host"])
async def test_a_server_that_cannot_reach_the_leader_is_left_for_one_that_can(
    tmp_path: Path, who: str
) -> None:
    require("nats-server")
    async with apart(tmp_path) as (servers, network), gateway(OnOne(servers), ttl_s=120) as opened:
        opened.hosts.add(remote())
        async with host(OnOne(servers)) as here:
            disk = here.spawner.disk()
            opened.hosts.deliver(entry(1, "message 1"))
            await until(lambda: len(disk.texts) == 1)
            leads = await leader_of(servers, stream_in("laptop"))
            bus = opened.hosts._bus if who == "gateway" else here.link._bus
            await connect_elsewhere(bus, leads)
            url = bus._client.connected_url
            assert url is not None
            (ours,) = [
                number for number, each in enumerate(servers.servers, 1) if each.address == url.hostname
            ]
            network.cut(ours, servers.servers.index(leads) + 1)
            for number in range(2, EACH + 1):
                opened.hosts.deliver(entry(number, f"message {number}"))
            await until(lambda: len(disk.texts) == EACH, within_s=90)
            assert disk.texts == [f"message {number}" for number in range(1, EACH + 1)]


async def test_a_gateway_leaves_a_server_that_cannot_reach_what_gateways_share(tmp_path: Path) -> None:
    """It may have nothing to write there yet: then only its own look tells."""
    require("nats-server")
    async with apart(tmp_path) as (servers, network), gateway(OnOne(servers), ttl_s=120) as opened:
        here, clock = opened.hosts._bus, SystemClock()
        await opened.notes.keep_note("a", "b")
        leads = await leader_of(servers, f"KV_{NOTES_BUCKET}")
        await connect_elsewhere(here, leads)
        network.cut(number_of(servers, here), servers.servers.index(leads) + 1)
        async with beside(keep_connected(here, opened.authority.leadership, clock), name="connection"):
            async with asyncio.timeout(60):
                while True:
                    with suppress(StoreError):
                        await opened.notes.keep_note("a", "c")
                        break
            assert await opened.notes.note("a") == "c"
