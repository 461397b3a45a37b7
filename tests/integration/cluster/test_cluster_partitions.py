"""Servers that do not hear each other: events go on, once each and in order. In network namespaces, as root."""

from __future__ import annotations

from pathlib import Path

import pytest

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
