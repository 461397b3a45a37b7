"""Ports of this machine's own loopback that `sandbox.hosts` names, behind the real walls: whoever asks, and however."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from codebutler_worker.egress.access import PORT
from codebutler_worker.egress.hosts import Hosts
from codebutler_worker.egress.proxy import Rules
from codebutler_worker.sandbox.port import SandboxPolicy
from tests.integration.egress.outside import Egress, inside, policy
from tests.programs import require
from tests.walls import walled

__all__ = ["policy"]
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlocal"


@asynccontextmanager
async def listening(host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """Something that says what it is, whatever it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(REPLY)
        writer.close()

    async with await asyncio.start_server(answer, host, port) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
def egress() -> Egress:
    return Egress()


@pytest.mark.parametrize("interpreter", ["perl", "python"])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
async def test_a_named_port_is_reached_without_asking_a_proxy(
    egress: Egress, policy: SandboxPolicy, name: str, interpreter: str
) -> None:
    sandbox = walled()
    perl = require("perl") if interpreter == "perl" else None
    sandbox._system = replace(sandbox._system, perl=perl)
    async with (
        listening() as port,
        listening() as other,
        await egress.open(Rules(Hosts((f"{name}:{port}", "127.0.0.1:2049"))), "hosts") as access,
    ):
        asked = (
            f"curl -sS http://127.0.0.1:{port}/ http://localhost:{port}/; curl -sS http://127.0.0.1:{other}/"
        )
        _, said = await inside(access, policy, asked, sandbox)
    assert said.startswith("locallocal")
    assert "Failed to connect" in said or "Couldn't connect" in said


async def test_a_program_may_still_serve_itself(egress: Egress, policy: SandboxPolicy) -> None:
    require("python3")
    async with (
        listening() as port,
        await egress.open(Rules(Hosts((f"127.0.0.1:{port}",))), "hosts") as access,
    ):
        script = (
            f"python3 -m http.server --bind 127.0.0.1 {port + 1} >/dev/null 2>&1 & "
            f"curl -sS --retry 20 --retry-connrefused --retry-delay 1 http://127.0.0.1:{port + 1}/README.md; "
            f"curl -sS http://127.0.0.1:{port}/"
        )
        _, said = await inside(access, policy, script)
    assert "A sample repository." in said
    assert said.endswith("local")


async def test_the_proxy_gives_way_to_a_named_port(egress: Egress, policy: SandboxPolicy) -> None:
    async with await egress.open(
        Rules(Hosts((f"127.0.0.1:{PORT}", f"127.0.0.1:{PORT + 1}"))), "hosts"
    ) as access:
        assert access.port == PORT + 2
        _, said = await inside(access, policy, "curl -sS http://evil.example.com/; echo $HTTPS_PROXY")
    assert "does not let this agent reach evil.example.com" in said
    assert f":{PORT + 2}" in said


async def test_nobody_there_is_nobody_there(egress: Egress, policy: SandboxPolicy) -> None:
    async with listening() as port:
        pass
    async with await egress.open(Rules(Hosts((f"127.0.0.1:{port}",))), "hosts") as access:
        code, said = await inside(access, policy, f"curl -sS http://127.0.0.1:{port}/")
    assert code != 0
    assert "local" not in said.replace("localhost", "")


async def test_a_port_that_only_root_may_open_is_left_out(egress: Egress, policy: SandboxPolicy) -> None:
    async with await egress.open(Rules(Hosts(("127.0.0.1", "localhost:22"))), "hosts") as access:
        code, said = await inside(access, policy, "curl -sS http://evil.example.com/")
    assert code == 0
    assert "does not let this agent reach evil.example.com" in said


async def test_much_is_carried_whole_both_ways(egress: Egress, policy: SandboxPolicy) -> None:
    size = 5_000_000

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with await egress.open(Rules(Hosts((f"127.0.0.1:{port}",))), "hosts") as access:
            script = (
                "import socket, threading\n"
                f"s = socket.create_connection(('127.0.0.1', {port}))\n"
                f"t = threading.Thread(target=lambda: (s.sendall(b'x' * {size}), s.shutdown(1)))\n"
                "t.start()\nn = 0\nwhile d := s.recv(65536): n += len(d)\nprint(n)\n"
            )
            assert await inside(access, policy, f'python3 -c "{script}"') == (0, f"{size}\n")
