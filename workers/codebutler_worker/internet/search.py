"""Searching the web with Tavily. Source: Tavily API reference, ``POST /search``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from codebutler.config.schema import TavilySection
from codebutler.domain.errors import CodeButlerError
from codebutler_worker.internet.remote import Remote, RemoteError

Depth = Literal["basic", "advanced"]
SEARCH_S = 60.0
MAX_ANSWER_BYTES = 2 * 2**20
CONTENT_CHARS = 1500
NEEDS_KEY = "web_search needs a key: set tavily.apiKey (or TAVILY_API_KEY)"


class SearchError(CodeButlerError):
    """The web could not be searched; one line that says what to do."""


class Hit(msgspec.Struct, frozen=True):
    """One page that was found."""

    title: str = ""
    url: str = ""
    content: str = ""


class _Answer(msgspec.Struct, frozen=True):
    results: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class WebSearch:
    """Holds no connection: each search makes its own. ``env`` names the proxies."""

    settings: TavilySection
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def available(self) -> bool:
        """Whether somebody has set the service up."""
        return bool(self.settings.api_key) or self.settings.base_url != TavilySection().base_url

    async def search(self, query: str, depth: Depth, most: int) -> tuple[Hit, ...]:
        """The best pages, best first; their texts are cut. Raises SearchError."""
        if not self.available:
            raise SearchError(NEEDS_KEY)
        body = {"query": query, "search_depth": depth, "max_results": most, "include_answer": False}
        status, content = await self._post(body)
        if status in (401, 403):
            raise SearchError(f"Tavily refuses the key (status {status}): check tavily.apiKey")
        if status in (429, 432, 433):
            raise SearchError("Tavily is at its limit: try later, or check the plan's quota")
        if status != 200:
            raise SearchError(f"Tavily refused the search (status {status})")
        try:
            found = msgspec.json.decode(content, type=_Answer).results
        except (msgspec.DecodeError, UnicodeError):
            raise SearchError("Tavily sent no search results: check tavily.baseUrl") from None
        return tuple(_cut(hit) for hit in found[:most])

    async def _post(self, body: dict[str, Any]) -> tuple[int, bytes]:
        settings = self.settings
        tavily = Remote(
            "Tavily", "tavily.baseUrl", settings.base_url, settings.api_key, self.env, MAX_ANSWER_BYTES
        )
        try:
            return await tavily.post("search", SEARCH_S, json=body)
        except RemoteError as error:
            raise SearchError(str(error)) from None


def _cut(hit: Hit) -> Hit:
    return Hit(
        " ".join(hit.title.split())[:200], "".join(hit.url.split())[:2048], hit.content[:CONTENT_CHARS]
    )
