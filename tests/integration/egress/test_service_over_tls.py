"""A model's service behind TLS: whom we take it for, and connections made ahead."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from codebutler.platform.tasks import abort
from codebutler_worker.egress.hosts import FRESH_S, Dialer
from codebutler_worker.egress.http import Streams, both_ways
from codebutler_worker.egress.proxy import Proxy, Rules
from codebutler_worker.egress.service import ModelService
from tests.clock import ManualClock
from tests.programs import require

NAME = "api.example"


@dataclass
class Api:
    """Answers one request on each connection, in HTTP/1.1."""

    certificate: Path
    server: asyncio.Server | None = None
    port: int = 0
    heads: list[bytes] = field(default_factory=list)
    connected: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    connections: list[asyncio.StreamWriter] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(writer)
        self.connected.release()
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine")
            await reader.read()
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.close()

    async def connect(self, _host: str, _port: int, **more: object) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port, **more)  # type: ignore[arg-type]

    def proxy(self, clock: ManualClock | None = None, trusted: Path | None = None) -> Proxy:
        env = {"SSL_CERT_FILE": str(trusted or self.certificate)}
        service = ModelService(base_url=f"https://{NAME}", token="t", keys=(("x-api-key", "real"),))
        return Proxy(Rules(service=service), Dialer(env, connect=self.connect), clock=clock or ManualClock())


def make(directory: Path, name: str) -> tuple[Path, Path]:
    certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
    words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    names = ("-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}")
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run([str(require("openssl")), *words, *names, *files], check=True, capture_output=True)
    return certificate, key


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    certificate, key = make(tmp_path, NAME)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    found = Api(certificate)
    found.server = await asyncio.start_server(found.answer, "127.0.0.1", 0, ssl=context)
    found.port = found.server.sockets[0].getsockname()[1]
    yield found
    found.server.close()
    for writer in found.connections:
        abort(writer.transport)
    await asyncio.gather(*(writer.wait_closed() for writer in found.connections), return_exceptions=True)


async def ask(proxy: Proxy) -> bytes:
    """One request through the proxy, from its own side."""
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nx-api-key: t\r\n\r\n")
        async with asyncio.timeout(30):
            answer = await reader.readuntil(b"fine") if b"200" in (head := await reader.readline()) else b""
            rest = await reader.read(1000) if not answer else b""
        writer.close()
        await writer.wait_closed()
    return head + answer + rest


async def test_a_connection_made_ahead_is_used_and_the_next_one_made(api: Api) -> None:
    proxy = api.proxy()
    proxy.prepare()
    async with asyncio.timeout(30):
        await api.connected.acquire()
        assert (await ask(proxy)).endswith(b"fine")
        assert b"x-api-key: real\r\n" in api.heads[0]
        assert api.heads[0].startswith(b"GET /v1/models HTTP/1.1\r\nHost: api.example\r\n")
        await api.connected.acquire()
    assert len(api.connections) == 2
    assert proxy.ahead is not None
    await proxy.ahead.close()


async def test_one_that_has_become_old_or_was_closed_is_not(api: Api) -> None:
    clock = ManualClock()
    proxy = api.proxy(clock)
    async with asyncio.timeout(30):
        proxy.prepare()
        await api.connected.acquire()
        await clock.advance(FRESH_S)
        assert (await ask(proxy)).endswith(b"fine")
        assert len(api.heads) == 1
        await api.connected.acquire()
    assert proxy.ahead is not None
    await proxy.ahead.close()


async def test_a_service_that_is_another_ones_gets_no_key(api: Api, tmp_path: Path) -> None:
    other, _ = make(tmp_path, "other.example")
    proxy = api.proxy(trusted=other)
    answer = await ask(proxy)
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"api.example cannot be reached" in answer
    assert api.heads == []


async def test_through_a_proxy_before_the_internet_too(api: Api) -> None:
    asked: list[bytes] = []
    ends: list[asyncio.StreamWriter] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        far = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        ends.extend((writer, far[1]))
        await both_ways((reader, writer), far)

    before = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    port = before.sockets[0].getsockname()[1]
    env = {"SSL_CERT_FILE": str(api.certificate), "HTTPS_PROXY": f"http://127.0.0.1:{port}"}
    service = ModelService(base_url=f"https://{NAME}", token="t", keys=(("x-api-key", "real"),))
    proxy = Proxy(Rules(service=service), Dialer(env), clock=ManualClock())
    async with before:
        assert (await ask(proxy)).endswith(b"fine")
    for end in ends:
        end.transport.abort()
    await asyncio.gather(*(end.wait_closed() for end in ends), return_exceptions=True)
    assert asked[0].startswith(b"CONNECT api.example:443 HTTP/1.1\r\n")
    assert b"x-api-key: real\r\n" in api.heads[0]
