"""A docker daemon that dies while a program runs in one of its containers.

What a dead daemon leaves is what clients of a cut line see: no answer, and containers that go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.sandbox.process import AgentProcess
from tests.containers import attack
from tests.dockerd import made_by
from tests.ordinary import give_away

SCRIPT = "trap '' TERM HUP INT; echo up; sleep 1000 & sleep 1000"


class Line:
    """A line to the daemon: ``cut`` ends it and all that is under way on it, ``mend`` brings it back."""

    def __init__(self, daemon: Path, place: Path) -> None:
        self._daemon = daemon
        self._place = place
        self._ends: set[asyncio.StreamWriter] = set()
        self._daemons: set[asyncio.StreamWriter] = set()
        self._carrying: set[asyncio.Task[None] | None] = set()
        self._down = False
        self._server: asyncio.Server | None = None

    async def mend(self) -> None:
        self._down = False
        self._server = await asyncio.start_unix_server(self._carry, self._place)

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        self._place.unlink(missing_ok=True)
        self._down = True
        for end in self._ends:
            end.transport.abort()

    async def close(self) -> None:
        await self.cut()
        for end in self._daemons:
            end.transport.abort()
        await asyncio.gather(*(task for task in self._carrying if task is not None))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, there = await asyncio.open_unix_connection(self._daemon)
        self._ends.add(writer)
        self._daemons.add(there)
        self._carrying.add(asyncio.current_task())
        await asyncio.gather(self._pass(reader, there), self._pass(theirs, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A daemon that is down hears of no end."""
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            if not self._down:
                writer.write_eof()
        except OSError:
            if not self._down:
                writer.transport.abort()


@pytest.fixture
async def line(docker_host: str, tmp_path: Path) -> AsyncIterator[Line]:
    line = Line(Path(docker_host.removeprefix("unix://")), tmp_path / "docker.sock")
    await line.mend()
    yield line
    await line.close()


@pytest.fixture
def policy(tmp_path: Path, git_repo: Path) -> SandboxPolicy:
    (tmp_path / "home").mkdir()
    give_away(tmp_path)
    env = {"PATH": "/usr/bin:/bin"}
    return SandboxPolicy(
        workdir=git_repo, home=tmp_path / "home", env=env, network="none", conversation="C1:1.1"
    )


async def gone(docker_host: str) -> None:
    async with asyncio.timeout(60):
        while made_by(docker_host, os.getpid()):  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.05)


async def test_nothing_goes_on_and_nothing_starts_until_it_is_back(
    line: Line, docker_host: str, tmp_path: Path, policy: SandboxPolicy
) -> None:
    sandbox = DockerSandbox(host=f"unix://{tmp_path}/docker.sock")
    async with await AgentProcess(sandbox.wrap(("sh", "-c", SCRIPT), policy)).start() as process:
        assert await anext(process.lines()) == b"up"
        assert len(made_by(docker_host, os.getpid())) == 1
        await line.cut()
        async with asyncio.timeout(60):
            assert await process.wait() != 0
    await gone(docker_host)
    with pytest.raises(SandboxUnavailableError, match="docker does not work here"):
        await attack(sandbox, policy, "echo up")
    await line.mend()
    assert await attack(sandbox, policy, "echo up") == (0, "up\n")
    await sandbox.close()


async def test_what_only_the_daemon_can_end_ends_when_it_is_back(
    line: Line, docker_host: str, tmp_path: Path, policy: SandboxPolicy
) -> None:
    sandbox = DockerSandbox(host=f"unix://{tmp_path}/docker.sock")
    async with await AgentProcess(sandbox.wrap(("sh", "-c", SCRIPT), policy)).start() as process:
        assert await anext(process.lines()) == b"up"
        # As where the daemon has a kernel of its own.
        sandbox._containers._busy[0].groups.clear()
        await line.cut()
        async with asyncio.timeout(60):
            await process.wait()
    assert len(made_by(docker_host, os.getpid())) == 1
    await line.mend()
    await gone(docker_host)
    await sandbox.close()
