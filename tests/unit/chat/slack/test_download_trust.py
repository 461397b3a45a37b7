"""With Slack itself as the service: which addresses the bot's token may go to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse
from yarl import URL

from codebutler.chat.slack.download import Downloads
from codebutler.domain.errors import ChatError
from tests.clock import ManualClock


class Source:
    """One file at ``url``; every request is noted and never answered."""

    base_url = "https://slack.com/api/"

    def __init__(self, url: str) -> None:
        self._url = url
        self.asked: list[tuple[str, bool]] = []

    async def file_info(self, file_id: str) -> Mapping[str, Any]:
        return {"id": file_id, "channels": ["C01"], "url_private": self._url}

    @asynccontextmanager
    async def open(self, url: URL, *, with_token: bool) -> AsyncIterator[ClientResponse]:
        self.asked.append((str(url), with_token))
        raise ChatError("not in this test", "refused")
        yield  # a context manager has to


async def asked(url: str) -> list[tuple[str, bool]]:
    source = Source(url)

    async def take(_: bytes) -> None:
        raise AssertionError

    with pytest.raises(ChatError):
        await Downloads(source, ManualClock()).fetch("C01", "F01", take)
    return source.asked


@pytest.mark.parametrize(
    "url",
    ["https://files.slack.com/files-pri/T1-F1/a%20b.png", "https://slack.com/a", "https://TEAM.SLACK.com/a"],
)
async def test_the_token_goes_to_slack(url: str) -> None:
    requests = await asked(url)
    assert [with_token for _, with_token in requests] == [True]
    assert requests[0][0].lower() == url.lower()


@pytest.mark.parametrize(
    "url",
    [
        "http://files.slack.com/a",
        "https://files.slack.com:8443/a",
        "https://files.slack.com@evil.example/a",
        "https://user@files.slack.com/a",
        "https://files.slack.com.evil.example/a",
        "https://evilslack.com/a",
        "https://evil.example/files.slack.com/a",
        "https://evil.example\\@files.slack.com/a",
        "https://evil.example#@files.slack.com/a",
        "https://evil.example?@files.slack.com/a",
        "https://files.slack.com\n.evil.example/a",
        "ftp://files.slack.com/a",
    ],
)
async def test_nothing_else_is_even_asked(url: str) -> None:
    assert await asked(url) == []
