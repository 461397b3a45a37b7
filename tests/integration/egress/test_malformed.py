"""What a hostile program writes to the proxy: it gets an answer or an end, and nothing of it reaches a server."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from codebutler_worker.egress.access import NetworkAccess, ProxiedAccess
from codebutler_worker.egress.hosts import Dialer, Hosts
from codebutler_worker.egress.http import Streams
from codebutler_worker.egress.proxy import Proxy, Rules
from codebutler_worker.egress.service import ModelService
from tests.loopback import on_loopback

TOKEN = "codebutler-token"
OURS = b"X-Api-Key: codebutler-token\r\n"
MALFORMED = (
    b"GET http://[ HTTP/1.1\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\n\r\n",
    b"GET http://a]b/ HTTP/1.1\r\n\r\n",
    b"GET http://[v1.x]/ HTTP/1.1\r\n\r\n",
    b"GET http://docs.example.org@evil.example/ HTTP/1.1\r\n\r\n",
    b"GET http://docs.example.org\\.evil.example/ HTTP/1.1\r\n\r\n",
    b"CONNECT evil.example:443\x00.docs.example.org:443 HTTP/1.1\r\n\r\n",
    b"CONNECT docs.example.org HTTP/1.1\r\n\r\n",
    b"CONNECT [fe80::1%25lo]:443 HTTP/1.1\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /api/x HTTP/1.1\nX: 1\r\n\r\n",
    b"GET /api/x#/../../ HTTP/1.1\r\n" + OURS + b"\r\n",
    b"GET //api/x HTTP/1.1\r\n" + OURS + b"\r\n",
    b"GET /api/%2e%2e/secret HTTP/1.1\r\n" + OURS + b"\r\n",
    b"GET /api/x HTTP/1.1\r\nX-Api-Key : codebutler-token\r\n\r\n",
    b"GET /api/x HTTP/1.1\r\nA: b\r\n X-Api-Key: other\r\n\r\n",
    b"GET /api/x HTTP/1.1\r\nA: b\nX-Api-Key: other\r\n\r\n",
    b"GET /api/x HTTP/1.1\r\nA: b\rX-Api-Key: other\r\n\r\n",
    b"GET /api/x HTTP/1.1\r\nX_Api_Key: other\r\n\r\n",
    b"GET /api/x HTTP/1.1\r\n" + OURS + b"Authorization: Bearer other\r\n\r\n",
    b"POST /api/x HTTP/1.1\r\n" + OURS + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /api/x HTTP/1.1\r\n" + OURS + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    b"POST /api/x HTTP/1.1\r\n" + OURS + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /api/x HTTP/1.1\r\n" + OURS + b"Content-Length: +5\r\n\r\nabcde",
    b"POST /api/x HTTP/1.1\r\n" + OURS + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    b"TRACE /api/x HTTP/1.1\r\n" + OURS + b"\r\n",
    b"A" * 70_000,
    b"GET /api/x HTTP/1.1\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
    b"GET /api/x HTTP/1.1\r\n" + b"A: b\r\n" * 12_000 + b"\r\n",
)
SECOND = b"GET /secret HTTP/1.1\r\nHost: x\r\n\r\n"
BESIDE = (
    b"GET /api/x HTTP/1.1\r\n" + OURS + b"\r\n" + SECOND,
    b"GET /api/x HTTP/1.0\r\nConnection: keep-alive\r\n" + OURS + b"\r\n" + SECOND,
    b"GET /api/x HTTP/1.1\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n" + OURS + b"\r\n" + SECOND,
    b"GET /api/x HTTP/1.1\r\nConnection: content-length\r\nContent-Length: 3\r\n" + OURS + b"\r\nabc" + SECOND,
    b"POST /api/x HTTP/1.1\r\nContent-Length: 3\r\n" + OURS + b"\r\nabc" + SECOND,
    b"POST /api/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + OURS + b"\r\n0\r\n\r\n" + SECOND,
    b"POST /api/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + OURS + b"\r\n3;a=\"b;\r\nabc\r\n0;\r\n\r\n" + SECOND,
    b"POST /api/x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + OURS + b"\r\n0\r\nContent-Length: 99\r\n\r\n" + SECOND,
    b"GET http://docs.example.org/api/x HTTP/1.1\r\nHost: evil.example\r\nHost: other\r\n\r\n" + SECOND,
)  # fmt: skip


@pytest.fixture
async def seen() -> list[str]:
    """The requests that reached a server."""
    return []


@pytest.fixture
async def access(seen: list[str]) -> AsyncIterator[NetworkAccess]:
    async def answer(request: web.Request) -> web.Response:
        seen.append(request.path_qs)
        return web.Response(text="well", headers={"X-Host": request.host})

    async def resolve(_host: str, _port: int) -> tuple[str, ...]:
        return ("93.184.216.34",)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with on_loopback(app) as port:

        async def connect(_host: str, _port: int, **more: Any) -> Streams:
            return await asyncio.open_connection("127.0.0.1", port, limit=more["limit"])

        service = ModelService(
            base_url=f"http://127.0.0.1:{port}/api", token=TOKEN, keys=(("x-api-key", "sk-the-real-key"),)
        )
        proxy = Proxy(Rules(Hosts(("docs.example.org",)), service), Dialer({}, resolve, connect))
        # On this machine's own loopback: what is written is what the proxy reads.
        async with ProxiedAccess(proxy=proxy, refused=proxy.refused, gauge=proxy.gauge) as opened:
            await opened.here()
            yield opened


async def ask(access: NetworkAccess, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", access.port)
    try:
        async with asyncio.timeout(30):
            writer.write(request)
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


async def test_what_is_malformed_reaches_nobody_and_is_no_surprise(
    access: NetworkAccess, seen: list[str], record_property: Any
) -> None:
    surprises: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: surprises.append(context))
    for request in MALFORMED:
        answer = await ask(access, request)
        assert answer[:10] in (b"", b"HTTP/1.1 4"), request
        assert b"sk-the-real-key" not in answer
    assert (await ask(access, b"GET /api/x HTTP/1.1\r\n" + OURS + b"\r\n")).endswith(b"well")
    gc.collect()  # what a task was surprised by is told when it goes
    assert seen == ["/api/x"]
    assert surprises == []
    record_property("attacks", len(MALFORMED))


async def test_what_is_said_after_a_request_reaches_nobody(
    access: NetworkAccess, seen: list[str], record_property: Any
) -> None:
    for request in BESIDE:
        answer = await ask(access, request)
        assert answer.endswith(b"well"), request
        assert answer.count(b"HTTP/1.1 200") == 1
        assert b"evil.example" not in answer
    assert seen == ["/api/x"] * len(BESIDE)
    record_property("attacks", len(BESIDE))


async def test_a_tunnel_has_no_body_and_leads_where_it_names(access: NetworkAccess, seen: list[str]) -> None:
    head = b"CONNECT docs.example.org:443 HTTP/1.1\r\nHost: evil.example:443\r\nContent-Length: 4\r\n\r\n"
    answer = await ask(
        access, head + b"GET /a HTTP/1.1\r\nHost: docs.example.org\r\nConnection: close\r\n\r\n"
    )
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert seen == ["/a"]
    for target in (
        "http://docs.example.org:443/",
        "docs.example.org:443/x",
        "x@docs.example.org:443",
        ":443",
    ):
        answer = await ask(access, f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 4"), target
    assert seen == ["/a"]
