"""A real nats-server on loopback, with JetStream on disk: each test starts its own and ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec.structs import replace
from nats.aio.client import Client
from nats.errors import Error as NatsError

from codebutler.cluster.authority import ClusterAuthority
from codebutler.cluster.buckets import BusError
from codebutler.cluster.bus import Bus
from codebutler.cluster.connection import connected_client
from codebutler.cluster.health import read_servers, read_streams
from codebutler.cluster.membership import GATEWAY, ClusterMembership
from codebutler.cluster.server import ROUTE_PINGS, Trust, server_config
from codebutler.domain.clock import SystemClock
from codebutler.domain.errors import CodeButlerError
from tests.programs import require

HOSTS = ("laptop", "tower")
DEADLINE_S = 20.0

T = TypeVar("T")


class NatsServer:
    """``start`` and ``kill`` as often as wanted: directory and port stay. ``within`` comes before its command."""

    def __init__(
        self,
        directory: Path,
        address: str = "127.0.0.1",
        within: tuple[str, ...] = (),
        hosts: Sequence[str] = HOSTS,
    ) -> None:
        self.address = address
        self.port, self.route_port = free_port(), free_port()
        self.name = directory.name
        self.store = directory / "store"
        self.within = within
        self._config = directory / "nats.conf"
        self._log = directory / "nats.log"
        self.authority = ClusterAuthority.new((self.url,), "")
        trust, self.members = trusted(self.authority, hosts)
        self._trust(trust)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"nats://{self.address}:{self.port}"

    def membership(self, name: str) -> ClusterMembership:
        return self.members[name]

    def _trust(self, trust: Trust) -> None:
        self.trust = trust
        self._settings = server_config(trust, listen=f"{self.address}:{self.port}", directory=str(self.store))

    def forget(self) -> None:
        """Trust nobody of before from the next start on."""
        self._trust(trusted(ClusterAuthority.new((self.url,), ""))[0])

    def join(self, first: NatsServer, others: Sequence[NatsServer]) -> None:
        """Be one of a cluster from the next start on, with those whom ``first`` knows."""
        self.authority, self.members = first.authority, first.members
        self._trust(first.trust)
        self._settings["server_name"] = self.name
        self._settings["cluster"] = {
            "name": "test",
            "listen": f"{self.address}:{self.route_port}",
            "routes": [f"nats-route://{each.address}:{each.route_port}" for each in others],
            "connect_retries": 100_000,
            **ROUTE_PINGS,
        }

    async def start(self) -> None:
        program = require("nats-server")
        self._config.write_text(json.dumps(self._settings))
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self.within, str(program), "-c", str(self._config), stdout=log, stderr=log
            )
        async with asyncio.timeout(DEADLINE_S):
            while not await answers_at(self.port, self.address):
                assert self._process.returncode is None, self._log.read_text()
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """As a power cut of the process: nothing is flushed."""
        await self._end(signal.SIGKILL)

    async def wipe(self) -> None:
        """It dies, and its disk with it."""
        await self.kill()
        shutil.rmtree(self.store)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_dead(self) -> bool:
        return self._process is None or self._process.returncode is not None

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, number)

    async def _end(self, number: int) -> None:
        self._signal(number)
        if self._process is not None:
            await self._process.wait()


def trusted(
    authority: ClusterAuthority, hosts: Sequence[str] = HOSTS
) -> tuple[Trust, dict[str, ClusterMembership]]:
    """What servers know from their start, and each member's credential."""
    now_s = int(time.time())
    trust, members = authority.trust(now_s), {GATEWAY: authority.gateway_membership(now_s)}
    accounts = dict(trust.accounts)
    for host in hosts:
        account, claims, members[host] = authority.new_host_account(host, now_s)
        accounts[account] = claims
    return Trust(trust.operator, trust.system, accounts), members


class NatsCluster:
    """Three servers, each of which knows the others."""

    def __init__(self, servers: Sequence[NatsServer]) -> None:
        self.servers = tuple(servers)
        for each in servers:
            each.join(servers[0], [other for other in servers if other is not each])

    @classmethod
    def of(cls, directory: Path, count: int = 3) -> NatsCluster:
        """On loopback."""
        names = [directory / f"n{number}" for number in range(1, count + 1)]
        for each in names:
            each.mkdir()
        return cls([NatsServer(each) for each in names])

    def membership(self, name: str, first: int = 0) -> ClusterMembership:
        """``first``: which server is tried first."""
        urls = [each.url for each in self.servers]
        known = self.servers[0].membership(name)
        return replace(known, servers=tuple(urls[first:] + urls[:first]))

    @asynccontextmanager
    async def system(self) -> AsyncIterator[Client]:
        """A connection that may ask the servers how they are."""
        authority = self.servers[0].authority.system_membership(int(time.time()))
        known = replace(authority, servers=tuple(each.url for each in self.servers))
        async with connected_client(known, SystemClock()) as (client, _):
            yield client

    def named(self, name: str) -> NatsServer:
        return next(each for each in self.servers if each.name == name)

    async def start(self) -> None:
        """Returns when they have a leader."""
        await asyncio.gather(*(each.start() for each in self.servers))
        await self.ready()

    async def ready(self) -> None:
        """They have a leader, and take what is to be on three disks."""
        async with bus(self) as connected:
            bucket = await patiently(lambda: connected.bucket("CB_READY"))
            await patiently(lambda: bucket.set("ready", "yes"))

    async def kill(self) -> None:
        for each in self.servers:
            each.resume()
        await asyncio.gather(*(each.kill() for each in self.servers))


class Servers(Protocol):
    """Of one cluster, or of none."""

    def membership(self, name: str) -> ClusterMembership:
        """What a gateway or host needs to know of them."""


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(DEADLINE_S * 2):
        while True:
            with contextlib.suppress(BusError, NatsError):
                return await work()
            await asyncio.sleep(0.1)


async def whole(servers: NatsCluster, replicas: int = 3) -> None:
    """Each server has everything, as whoever replaces a disk waits for before touching the next one."""
    async with bus(servers) as connected, servers.system() as system, asyncio.timeout(DEADLINE_S * 3):
        while True:
            with contextlib.suppress(CodeButlerError):
                copies = await read_streams(connected._client)
                said = await read_servers(system, SystemClock(), len(servers.servers))
                if copies and not any(each.behind or each.replicas != replicas for each in copies):
                    if len(said) == len(servers.servers) and not any(each.missing_data for each in said):
                        return
                else:
                    await connected.streams.spread()
            await asyncio.sleep(0.1)


@asynccontextmanager
async def nats_cluster(directory: Path) -> AsyncIterator[NatsCluster]:
    cluster = NatsCluster.of(directory)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.kill()


@asynccontextmanager
async def nats_server(directory: Path) -> AsyncIterator[NatsServer]:
    server = NatsServer(directory)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@asynccontextmanager
async def bus(server: Servers, name: str = "gateway") -> AsyncIterator[Bus]:
    async with Bus.connected(server.membership(name), SystemClock()) as connected:
        yield connected


async def answers_at(port: int, address: str = "127.0.0.1") -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


def free_port(apart: int = 0) -> int:
    """Free, and so is the one that is ``apart`` from it."""
    while True:
        with socket.socket() as sock, socket.socket() as other:
            sock.bind(("127.0.0.1", 0))
            port: int = sock.getsockname()[1]
            if not apart:
                return port
            with suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + apart))
                return port
