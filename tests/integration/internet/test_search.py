"""Searching, against a service of the tests that speaks Tavily's API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from codebutler.config.schema import TavilySection
from codebutler_worker.internet.remote import CONTENT_CHARS, RemoteError, WebSearch
from tests.loopback import on_loopback

KEY = "tvly-1234567890"


@dataclass
class Tavily:
    """Answers with ``body`` and ``status``; ``asked`` is what came."""

    body: Any = field(default_factory=lambda: {"query": "q", "results": []})
    status: int = 200
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.headers.get("authorization", ""), await request.json()))
        if isinstance(self.body, bytes):
            return web.Response(body=self.body, status=self.status)
        return web.json_response(self.body, status=self.status)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[WebSearch]:
        app = web.Application()
        app.router.add_post("/search", self.answer)
        async with on_loopback(app) as port:
            yield WebSearch(TavilySection(api_key=KEY, base_url=f"http://127.0.0.1:{port}/"))


def found(number: int) -> dict[str, Any]:
    return {
        "title": f"Page\n{number}",
        "url": f"https://example.org/{number}",
        "content": "x" * 9000,
        "score": 0.9,
    }


async def test_the_service_is_asked_in_its_own_words_and_its_answer_is_cut() -> None:
    tavily = Tavily(
        {"query": "q", "answer": None, "results": [found(at) for at in range(9)], "response_time": 1.2}
    )
    async with tavily.serving() as service:
        hits = await service.search("how to", "advanced", 3)
    assert tavily.asked == [
        (
            f"Bearer {KEY}",
            {"query": "how to", "search_depth": "advanced", "max_results": 3, "include_answer": False},
        )
    ]
    assert [hit.url for hit in hits] == [f"https://example.org/{at}" for at in range(3)]
    assert hits[0].title == "Page 0"
    assert len(hits[0].content) == CONTENT_CHARS


@pytest.mark.parametrize(
    ("status", "body", "line"),
    [
        (401, {"detail": {"error": "Unauthorized"}}, "refuses the key"),
        (429, {}, "at its limit"),
        (432, {}, "at its limit"),
        (500, b"oops", "status 500"),
        (200, b"<html>", "no search results"),
        (200, {"results": [{"title": 5}]}, "no search results"),
        (200, b"x" * (3 * 2**20), "sent too much"),
    ],
)
async def test_a_refusal_is_one_line_without_the_key(status: int, body: Any, line: str) -> None:
    async with Tavily(body, status).serving() as service:
        with pytest.raises(RemoteError, match=line) as refused:
            await service.search("q", "basic", 5)
    assert KEY not in str(refused.value)


async def test_without_a_key_nothing_is_asked() -> None:
    assert not WebSearch(TavilySection()).available
    with pytest.raises(RemoteError, match=r"tavily\.apiKey"):
        await WebSearch(TavilySection()).search("q", "basic", 5)


async def test_a_service_that_is_away_is_one_line() -> None:
    service = WebSearch(TavilySection(api_key=KEY, base_url="http://127.0.0.1:9"))
    with pytest.raises(RemoteError, match="cannot be reached"):
        await service.search("q", "basic", 5)


@pytest.mark.parametrize(("key", "proxy"), [("tvly-\u200b", ""), (KEY, "proxy:3128")])
async def test_what_cannot_be_used_is_said(key: str, proxy: str) -> None:
    service = WebSearch(TavilySection(api_key=key, base_url="http://192.0.2.1/"), {"HTTP_PROXY": proxy})
    with pytest.raises(RemoteError, match=r"tavily.apiKey.*HTTPS_PROXY"):
        await service.search("q", "basic", 1)
