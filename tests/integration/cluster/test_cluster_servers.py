"""Three NATS servers, as ``codebutler cluster create`` configures them for a network, with TLS between all of them."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from uuid import uuid4

from msgspec.structs import replace

from codebutler.cluster.authority import ClusterAuthority
from codebutler.cluster.bus import Bus
from codebutler.cluster.connection import HostAccounts
from codebutler.cluster.membership import ClusterMembership, calls_of, stream_out
from codebutler.cluster.server import ROUTES_APART, NatsFiles, NatsNode
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import ConfigError
from tests.natsserver import answers_at, free_port
from tests.programs import require
from tests.seam import DEADLINE_S

CLOCK = SystemClock()


class Servers:
    """Ended with their block."""

    def __init__(self, root: Path) -> None:
        require("openssl")
        self.nodes = tuple(NatsNode("127.0.0.1", free_port(ROUTES_APART)) for _ in range(3))
        files = NatsFiles(root / "nats", self.nodes, encrypted=True)
        urls = tuple(each.url(encrypted=True) for each in self.nodes)
        self.authority = ClusterAuthority.new(urls, files.ca.decode())
        self._folders = files.write(self.authority.trust(int(time.time())), "data", b"")
        self._processes: dict[int, asyncio.subprocess.Process] = {}

    @property
    def gateway(self) -> ClusterMembership:
        return self.authority.gateway_membership(int(time.time()))

    async def start(self, number: int) -> None:
        self._processes[number] = await asyncio.create_subprocess_exec(
            str(require("nats-server")), "-c", "nats.conf", "-l", "log", cwd=self._folders[number]
        )
        async with asyncio.timeout(DEADLINE_S):
            while not await answers_at(self.nodes[number].port):  # noqa: ASYNC110 - a server tells nobody
                await asyncio.sleep(0.05)

    async def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.kill()
        await process.wait()

    async def __aenter__(self) -> Servers:
        for number in range(3):
            await self.start(number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in list(self._processes):
            await self.kill(number)


async def test_a_server_that_was_down_does_not_bring_a_removed_host_back(tmp_path: Path) -> None:
    async with Servers(tmp_path) as servers:
        async with HostAccounts.opened(servers.authority, servers.gateway, CLOCK) as accounts:
            host = await accounts.invite("laptop")
        third = replace(host, servers=(servers.nodes[2].url(encrypted=True),))
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(Bus.connected(servers.gateway, CLOCK))
            await admin.ensure_stream(stream_out("laptop"), calls_of("laptop", ">"), 2**20)
            here = await stack.enter_async_context(Bus.connected(third, CLOCK))
            # Three copies, through the one server that this host knows.
            await here.publish(calls_of("laptop", "shop"), b"hello", uuid4().hex)
            assert await admin.message_counts(stream_out("laptop"), ">") == {calls_of("laptop", "shop"): 1}
        await servers.kill(2)
        near = replace(servers.gateway, servers=servers.gateway.servers[:2])
        async with HostAccounts.opened(servers.authority, near, CLOCK) as accounts:
            assert await accounts.remove("laptop")
        await servers.start(2)
        async with asyncio.timeout(60):
            while not await is_refused(third):  # noqa: ASYNC110 - until it has heard of it from the others
                await asyncio.sleep(0.2)
        async with HostAccounts.opened(servers.authority, servers.gateway, CLOCK) as accounts:
            assert await accounts.hosts() == ()
        assert await is_refused(host)


async def is_refused(membership: ClusterMembership) -> bool:
    try:
        async with Bus.connected(membership, CLOCK):
            return False
    except ConfigError as error:
        return "it was removed" in str(error)


async def test_a_server_without_a_certificate_of_the_cluster_is_no_part_of_it(tmp_path: Path) -> None:
    """Nobody joins the servers' own network from outside, who would then see everything."""
    async with Servers(tmp_path) as servers:
        reader, writer = await asyncio.open_connection("127.0.0.1", servers.nodes[0].port + ROUTES_APART)
        writer.write(b'CONNECT {"verbose":false,"tls_required":false,"name":"x","cluster":"codebutler"}\r\n')
        async with asyncio.timeout(DEADLINE_S):
            with suppress(ConnectionError):
                while data := await reader.read(4096):  # to the end: it hangs up
                    assert b"PONG" not in data
        writer.close()
