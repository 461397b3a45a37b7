"""Who belongs to a cluster, and of which version, over a real NATS server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from codebutler.cluster.bus import Bus
from codebutler.cluster.connection import HostAccounts
from codebutler.cluster.membership import GATEWAY, questions_of
from codebutler.cluster.messages import (
    CLUSTER_VERSION,
    ClusterCodec,
    Granted,
    HostHeartbeat,
    Refused,
    Reply,
    encode,
)
from codebutler.cluster.moving import announce_removal, purge_host
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ConfigError
from codebutler.domain.message import said
from codebutler.domain.model import Post
from codebutler.platform.tasks import beside
from codebutler.protocol.messages import Send
from tests.natsserver import NatsServer, bus, nats_server
from tests.seam import DEADLINE_S, gateway, host, remote, until
from tests.workers.services import entry

CLOCK = SystemClock()
REPLIES: ClusterCodec[Reply] = ClusterCodec(Reply)


async def removed(server: NatsServer, name: str) -> None:
    async with HostAccounts.opened(server.authority, server.membership(GATEWAY), CLOCK) as accounts:
        assert await accounts.remove(name)


async def test_what_waited_for_a_removed_host_is_counted_dropped_and_told(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, bus(server) as command, gateway(server) as opened:
        opened.hosts.add(remote())
        opened.hosts.add(remote("my.tools", "C02"))
        opened.hosts.add(remote("other", "C03", "tower"))
        opened.hosts.deliver(entry(1, "one"))
        opened.hosts.deliver(entry(2, "two"))
        opened.hosts.deliver(entry(3, "three", channel="C02"))
        await until(lambda: sorted(opened.services.settled) == [1, 2, 3])
        await removed(server, "laptop")
        gone = await purge_host(command, "laptop")
        assert gone.waited == {"shop": 2, "my.tools": 1}
        assert await announce_removal(command, gone)
        told = dict(opened.services.notices)
        assert set(told) == {"shop", "my.tools"}
        assert told["shop"].startswith(
            "its host laptop was removed from the cluster. 2 messages waited for it and are dropped: once"
        )
        assert "One message waited for it and is dropped" in told["my.tools"]
        assert (await purge_host(command, "laptop")).waited == {}


async def test_without_a_gateway_nobody_is_told_of_a_removal(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, bus(server) as command:
        gone = await purge_host(command, "laptop")
        assert (gone.waited, gone.calls) == ({}, 0)
        assert not await announce_removal(command, gone)


async def test_a_host_that_is_removed_among_its_work_ends_and_the_others_go_on(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server, gateway(server) as opened:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "tower"))
        async with host(server) as laptop, host(server, "tower") as tower:
            worker = await laptop.spawner.worker()
            await tower.spawner.worker("tools")
            async with Bus.connected(server.membership("laptop"), CLOCK) as connected:
                await removed(server, "laptop")
                async with asyncio.timeout(DEADLINE_S):
                    with pytest.raises(ConfigError, match="removed from the cluster"):
                        await connected.wait_refused()
            worker.say(Send(op_id="op1", operation=Post(message=said("too late"))))
            opened.hosts.deliver(entry(1, "for tools", channel="C02"))
            await until(lambda: tower.spawner.disk("tools").texts == ["for tools"])
            assert opened.services.sent == []


async def test_a_machine_is_invited_while_everything_runs(tmp_path: Path) -> None:
    """No server restarts or reloads for it, and its first event comes at once."""
    async with nats_server(tmp_path) as server, gateway(server) as opened, host(server) as laptop:
        opened.hosts.add(remote())
        opened.hosts.add(remote("tools", "C02", "desk"))
        await laptop.spawner.worker()
        async with HostAccounts.opened(server.authority, server.membership(GATEWAY), CLOCK) as accounts:
            server.members["desk"] = await accounts.invite("desk")
        async with host(server, "desk") as desk:
            opened.hosts.deliver(entry(1, "for tools", channel="C02"))
            await until(lambda: desk.spawner.disk("tools").texts == ["for tools"])
        assert not laptop.running.done()


async def beat(connected: Bus, version: int) -> Reply:
    told = HostHeartbeat(epoch=0, version=version, instance="one", release="0.0.9")
    return REPLIES.decode(await connected.ask(questions_of("laptop"), encode(told)))


async def test_a_gateway_serves_the_version_before_and_names_the_side_to_update(tmp_path: Path) -> None:
    async with (
        nats_server(tmp_path) as server,
        gateway(server) as opened,
        bus(server, "laptop") as connected,
    ):
        opened.hosts.add(remote())
        newer = await beat(connected, CLUSTER_VERSION + 1)
        assert isinstance(newer, Refused)
        assert not newer.for_now
        assert newer.why.startswith("laptop runs CodeButler 0.0.9, too new for its gateway")
        assert "update CodeButler at the gateway first" in newer.why
        assert opened.hosts.down("shop") == newer.why
        older = await beat(connected, CLUSTER_VERSION - 2)
        assert isinstance(older, Refused)
        assert "too old" in older.why
        assert "update CodeButler on laptop" in older.why
        assert isinstance(await beat(connected, CLUSTER_VERSION - 1), Granted)
        assert opened.hosts.down("shop") == ""


async def test_a_server_that_comes_back_brings_nobody_back(tmp_path: Path) -> None:
    """And its members connect again by themselves."""
    async with nats_server(tmp_path) as server, bus(server, "tower") as tower:
        await removed(server, "laptop")
        await server.kill()
        await server.start()
        async with gateway(server) as opened:
            opened.hosts.add(remote("tools", "C02", "tower"))
            async with beside(tower.wait_refused(), name="refused"):
                reply = await tower.ask(
                    questions_of("tower"),
                    encode(HostHeartbeat(epoch=0, version=CLUSTER_VERSION, instance="two")),
                    DEADLINE_S,
                )
            assert isinstance(REPLIES.decode(reply), Granted)
        async with asyncio.timeout(DEADLINE_S):
            with pytest.raises(ConfigError, match="refuse laptop"):
                async with Bus.connected(server.membership("laptop"), CLOCK):
                    raise AssertionError("let in")
