"""A real nats-server on loopback, with JetStream on disk: each test starts its own and ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from codebutler.cluster.authority import ClusterAuthority
from codebutler.cluster.bus import Bus
from codebutler.cluster.membership import ClusterMembership
from codebutler.cluster.server import Trust, server_config, written
from codebutler.cluster.subjects import GATEWAY
from codebutler.domain.clock import SystemClock
from tests.programs import require

HOSTS = ("laptop", "tower")
DEADLINE_S = 20.0


class NatsServer:
    """``start`` and ``kill`` as often as wanted: its directory and its port stay."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._config = directory / "nats.conf"
        self._log = directory / "nats.log"
        self.authority = ClusterAuthority.new((self.url,), "", 1)
        trust, self.members = trusted(self.authority)
        config = server_config(trust, listen=f"127.0.0.1:{self.port}", directory=str(directory / "store"))
        self._config.write_bytes(written(config))
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def membership(self, name: str) -> ClusterMembership:
        return self.members[name]

    async def start(self) -> None:
        program = require("nats-server")
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(program), "-c", str(self._config), stdout=log, stderr=log
            )
        async with asyncio.timeout(DEADLINE_S):
            while not await answers_at(self.port):
                assert self._process.returncode is None, self._log.read_text()
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """As a power cut of the process: nothing is flushed."""
        await self._end(signal.SIGKILL)

    async def _end(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, number)
            await self._process.wait()


def trusted(
    authority: ClusterAuthority, hosts: tuple[str, ...] = HOSTS
) -> tuple[Trust, dict[str, ClusterMembership]]:
    """What servers know from their start, and each member's credential."""
    now_s = int(time.time())
    trust, members = authority.trust(now_s), {GATEWAY: authority.of_gateway(now_s)}
    accounts = dict(trust.accounts)
    for host in hosts:
        account, claims, members[host] = authority.invited(host, now_s)
        accounts[account] = claims
    return Trust(trust.operator, trust.system, accounts), members


@asynccontextmanager
async def nats_server(directory: Path) -> AsyncIterator[NatsServer]:
    server = NatsServer(directory)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()


@asynccontextmanager
async def bus(server: NatsServer, name: str = "gateway") -> AsyncIterator[Bus]:
    async with Bus.connected(server.membership(name), SystemClock()) as connected:
        yield connected


async def answers_at(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
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
