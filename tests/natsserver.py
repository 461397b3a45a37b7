"""A real nats-server on loopback, with JetStream on disk: each test starts its own and ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from codebutler.cluster.bus import Bus
from codebutler.cluster.membership import ClusterMembership
from codebutler.cluster.server import server_config
from codebutler.domain.clock import SystemClock
from tests.programs import require

HOSTS = ("laptop", "tower")
DEADLINE_S = 20.0


class NatsServer:
    """``start`` and ``kill`` as often as wanted: its directory and its port stay."""

    def __init__(self, directory: Path) -> None:
        self.port = _free_port()
        self._config = directory / "nats.conf"
        self._log = directory / "nats.log"
        passwords = {name: f"secret of {name}" for name in ("gateway", *HOSTS)}
        self._config.write_text(
            server_config(passwords, listen=f"127.0.0.1:{self.port}", directory=str(directory / "store"))
        )
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def membership(self, name: str) -> ClusterMembership:
        return ClusterMembership(servers=(self.url,), name=name, password=f"secret of {name}")

    async def start(self) -> None:
        program = require("nats-server")
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(program), "-c", str(self._config), stdout=log, stderr=log
            )
        async with asyncio.timeout(DEADLINE_S):
            while not await self._answers():
                assert self._process.returncode is None, self._log.read_text()
                await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """As a power cut of the process: nothing is flushed."""
        await self._end(signal.SIGKILL)

    async def _end(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, number)
            await self._process.wait()

    async def _answers(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


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


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port
