"""Requests to the model's service that cost something and try not to be counted: the service reports no figures, as
llama.cpp and many gateways do, so its answers are estimated. And requests without our token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from codebutler_worker.egress.proxy import Rules
from codebutler_worker.egress.service import ModelService
from tests.integration.egress.outside import KEY, TOKEN, Egress, Internet, egress
from tests.loopback import on_loopback

__all__ = ["egress"]

WORDS = b"a" * 4000
PATH = "/gateway/v1/chat/completions"


class Uncounted(Internet):
    """Streams an answer in which nobody says what it cost."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        await request.read()
        return web.Response(text='data: {"choices": []}\n\n' * 50, content_type="text/event-stream")


@pytest.fixture
async def internet() -> AsyncIterator[Internet]:
    found = Uncounted()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    async with on_loopback(app) as found.port:
        yield found


def request_to(path: str, *headers: str, chunked: bool = False) -> bytes:
    body, length = WORDS, f"Content-Length: {len(WORDS)}"
    if chunked:
        body, length = b"%x\r\n%s\r\n0\r\n\r\n" % (len(WORDS), WORDS), "Transfer-Encoding: chunked"
    lines = (f"POST {path} HTTP/1.1", "Host: 127.0.0.1", length, *headers, "", "")
    return "\r\n".join(lines).encode() + body


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


def served_at(internet: Internet) -> ModelService:
    url = f"http://127.0.0.1:{internet.port}/gateway"
    return ModelService(
        base_url=url, token=TOKEN, keys=(("x-api-key", KEY),), extra=(("X-Login", "the-owners-login"),)
    )


@pytest.mark.parametrize(
    "request_sent",
    [
        request_to(PATH, f"x-api-key: {TOKEN}"),
        request_to(PATH, f"x-api-key: {TOKEN}", chunked=True),
        request_to(PATH, f"x-api-key: {TOKEN}", "Expect: 100-continue"),
        request_to(f"{PATH}/", f"x-api-key: {TOKEN}"),
        request_to("/gateway/v1/chat/completion%73", f"x-api-key: {TOKEN}"),
        request_to("/gateway/v1/completions", f"x-api-key: {TOKEN}"),
    ],
    ids=["plain", "chunked", "continued", "slash", "encoded", "older"],
)
async def test_whatever_costs_something_is_counted(
    egress: Egress, internet: Internet, request_sent: bytes
) -> None:
    async with await egress.open(Rules(service=served_at(internet)), "open") as access:
        answer = await asked(access.port, request_sent)
    assert b"choices" in answer
    assert access.gauge.input >= len(WORDS) // 4
    assert access.gauge.output >= 50


async def test_what_stands_after_a_fragments_sign_does_not_make_it_free(
    egress: Egress, internet: Internet
) -> None:
    async with await egress.open(Rules(service=served_at(internet)), "open") as access:
        answer = await asked(access.port, request_to(f"{PATH}#/count_tokens", f"x-api-key: {TOKEN}"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert internet.seen == []


async def test_who_has_no_token_does_not_get_the_owners_other_headers(
    egress: Egress, internet: Internet
) -> None:
    """With an open network, everybody on this machine can connect to the proxy."""
    async with await egress.open(Rules(service=served_at(internet)), "open") as access:
        await asked(access.port, request_to(PATH))
        await asked(access.port, request_to(PATH, f"x-api-key: {TOKEN}"))
    assert [request.headers.get("X-Login") for request in internet.seen] == [None, "the-owners-login"]
