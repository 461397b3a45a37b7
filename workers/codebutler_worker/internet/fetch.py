"""Fetching a page for an agent: from the public internet only, within bounds of time and size.

The address may have come from anywhere: a page, an issue, a log. Nothing of ours goes along (no cookies, no key, no
proxy), and each redirect is checked like the first address.
"""

from __future__ import annotations

import asyncio
import ssl
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codebutler_worker.internet.markup import kind_of, readable, text_of
from codebutler_worker.internet.urls import PageRefusedError, Target, target

if TYPE_CHECKING:
    import httpx

    from codebutler_worker.internet.transport import Resolve

MAX_REDIRECTS = 3
MAX_BYTES = 2 * 2**20
"""Of content, after it is unpacked; the rest is left out."""
MAX_SENT_BYTES = 2 * 2**20
TOTAL_S = 30.0
CONNECT_S = 10.0
MAX_CHARS = 40_000
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PIECE = 64 * 2**10
_HEADERS = {
    "User-Agent": "CodeButler (an agent fetching one page for its user)",
    "Accept": "text/html,text/plain,application/json,application/xml;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip",
}


@dataclass(frozen=True, slots=True)
class Page:
    """What was found at ``url`` (where redirects led). ``cut``: there was more."""

    url: str
    status: int
    kind: str
    text: str
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Internet:
    """How pages are reached. Tests, which have no internet, bring their own; everybody else takes the defaults."""

    resolve: Resolve | None = None
    verify: ssl.SSLContext | None = None
    dial: Callable[[str, int], tuple[str, int]] | None = None
    total_s: float = TOTAL_S

    async def fetch(self, url: str) -> Page:
        """The page at ``url`` as text. Raises PageRefusedError with one line that says why not."""
        wanted = target(url)
        try:
            async with asyncio.timeout(self.total_s):
                return await self._follow(wanted)
        except TimeoutError:
            raise PageRefusedError(f"{wanted.host} did not send the page within {self.total_s:g} s") from None

    async def _follow(self, wanted: Target) -> Page:
        for _ in range(MAX_REDIRECTS + 1):
            found = await self._get(wanted)
            if isinstance(found, Page):
                return found
            wanted = found
        raise PageRefusedError(f"the page redirects more than {MAX_REDIRECTS} times")

    async def _get(self, wanted: Target) -> Page | Target:
        import httpx

        from codebutler_worker.internet.transport import PublicTransport, system_resolve

        transport = PublicTransport(self.resolve or system_resolve, self.verify, self.dial)
        timeout = httpx.Timeout(self.total_s, connect=CONNECT_S)
        try:
            async with (
                httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False) as client,
                client.stream("GET", wanted.url, headers=_HEADERS) as response,
            ):
                location = response.headers.get("location", "")
                if response.status_code in _REDIRECTS and location:
                    return target(location, base=wanted)
                return await _page(response, wanted)
        except httpx.TimeoutException:
            raise PageRefusedError(f"{wanted.host} did not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise PageRefusedError(f"{wanted.host} cannot be reached ({type(error).__name__})") from None


async def _page(response: httpx.Response, wanted: Target) -> Page:
    content_type = response.headers.get("content-type", "")
    if not readable(content_type):
        raise PageRefusedError(f"the page is {kind_of(content_type)[:60]}, which is no text")
    content, cut = await _content(response)
    # The library works on megabytes for tenths of a second: not in the loop.
    text = await asyncio.to_thread(text_of, content, content_type)
    return Page(
        wanted.url,
        response.status_code,
        kind_of(content_type),
        text[:MAX_CHARS],
        cut or len(text) > MAX_CHARS,
    )


async def _content(response: httpx.Response) -> tuple[bytes, bool]:
    """Unpacked here, a bounded piece at a time: httpx would unpack each piece whole, a thousand times as large."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        raise PageRefusedError(f"the page is packed as {encoding[:40]}, which was not asked for")
    unpack = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
    found, sent = bytearray(), 0
    async for piece in response.aiter_raw(_PIECE):
        sent += len(piece)
        try:
            found += piece if unpack is None else unpack.decompress(piece, MAX_BYTES + 1 - len(found))
        except zlib.error:
            raise PageRefusedError("the page is damaged: it cannot be unpacked") from None
        if len(found) > MAX_BYTES or sent > MAX_SENT_BYTES:
            return bytes(found[:MAX_BYTES]), True
    return bytes(found), False
