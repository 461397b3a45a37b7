"""Fetching a page for an agent: from the public internet only, within limits of time and size.

The address may come from anywhere: a page, an issue, a log. The request carries nothing of ours (no cookies, no key, no
proxy), and each redirect is checked like the first address.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import ssl
import zlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from codebutler_worker.internet.addresses import (
    PageAddress,
    PageRefusedError,
    Resolve,
    parse_address,
    public_address,
    system_resolve,
)

if TYPE_CHECKING:
    import httpx

MAX_REDIRECTS = 3
MAX_BYTES = 2 * 2**20
"""Of decompressed content; the rest is left out."""
MAX_SENT_BYTES = 2 * 2**20
TOTAL_S = 30.0
CONNECT_S = 10.0
MAX_CHARS = 40_000
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_PIECE = 64 * 2**10
_HEADERS = {
    "User-Agent": "CodeButler (an agent fetching one page for its user)",
    "Accept": "text/html,text/plain,application/json,application/xml;q=0.9,*/*;q=0.1",
}


class WebPage(Struct, frozen=True):
    """The page found at ``url`` (after redirects). ``cut``: it was longer."""

    url: str
    status: int
    kind: str
    text: str
    cut: bool = False


T = TypeVar("T")
Read = Callable[["httpx.Response", PageAddress], Awaitable[T]]


class Internet(Struct, frozen=True):
    """How pages are reached. Tests run without internet and pass their own; everybody else uses the defaults."""

    resolve: Resolve = system_resolve
    verify: ssl.SSLContext | None = None
    dial: Callable[[str, int], tuple[str, int]] | None = None
    total_s: float = TOTAL_S

    async def fetch(self, url: str) -> WebPage:
        """The page at ``url`` as text. Raises PageRefusedError with one line that says why not."""
        return await self._follow(url, _read_page, "the page")

    async def end_of(self, url: str, kept_bytes: int, max_bytes: int) -> bytes:
        """The last ``kept_bytes`` of what is at ``url``, whatever that is. Raises PageRefusedError."""
        return await self._follow(url, partial(_read_end, kept_bytes=kept_bytes, max_bytes=max_bytes), "it")

    async def _follow(self, url: str, read: Read[T], what: str) -> T:
        first = address = parse_address(url)
        try:
            async with asyncio.timeout(self.total_s):
                for _ in range(MAX_REDIRECTS + 1):
                    found = await self._get(address, read)
                    if not isinstance(found, PageAddress):
                        return found
                    address = found
        except TimeoutError:
            raise PageRefusedError(f"{first.host} did not send {what} within {self.total_s:g} s") from None
        raise PageRefusedError(f"the page redirects more than {MAX_REDIRECTS} times")

    async def _get(self, address: PageAddress, read: Read[T]) -> T | PageAddress:
        import httpx

        # Connect to the checked address; the Host header and the certificate check use the name.
        public_ip = await public_address(address.host, address.port, self.resolve)
        ip, port = self.dial(public_ip, address.port) if self.dial else (public_ip, address.port)
        encoding = "gzip" if read is _read_page else "identity"
        context = self.verify or httpx.create_ssl_context()
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=0)
        transport = httpx.AsyncHTTPTransport(verify=context, limits=limits, trust_env=False)
        timeout = httpx.Timeout(self.total_s, connect=CONNECT_S)
        try:
            async with (
                httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False) as client,
                client.stream(
                    "GET",
                    httpx.URL(address.url).copy_with(host=ip, port=port),
                    headers={**_HEADERS, "Accept-Encoding": encoding, "Host": address.authority},
                    extensions={"sni_hostname": address.host},
                ) as response,
            ):
                location = response.headers.get("location", "")
                if response.status_code in _REDIRECTS and location:
                    return parse_address(location, base=address)
                return await read(response, address)
        except httpx.TimeoutException:
            raise PageRefusedError(f"{address.host} did not answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise PageRefusedError(f"{address.host} cannot be reached ({type(error).__name__})") from None


async def _read_page(response: httpx.Response, address: PageAddress) -> WebPage:
    content_type = response.headers.get("content-type", "")
    if not is_readable(content_type):
        raise PageRefusedError(f"the page is {media_type(content_type)[:60]}, not text")
    content, cut = await _decompress(response)
    # The library takes tenths of a second for megabytes, so it runs off the event loop.
    text = await asyncio.to_thread(text_of, content, content_type)
    return WebPage(
        address.url,
        response.status_code,
        media_type(content_type),
        text[:MAX_CHARS],
        cut or len(text) > MAX_CHARS,
    )


async def _read_end(
    response: httpx.Response, address: PageAddress, *, kept_bytes: int, max_bytes: int
) -> bytes:
    if response.status_code >= 300:
        raise PageRefusedError(f"{address.host} refused ({response.status_code})")
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
        raise PageRefusedError(f"{address.host} sent it compressed")
    found, sent = bytearray(), 0
    async for piece in response.aiter_raw(_PIECE):
        found += piece
        sent += len(piece)
        if sent > max_bytes:
            raise PageRefusedError("it is too long")
        del found[:-kept_bytes]
    return bytes(found)


async def _decompress(response: httpx.Response) -> tuple[bytes, bool]:
    """Decompressed here in bounded pieces: httpx would decompress each piece whole, up to a thousand times its size."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip", ""):
        raise PageRefusedError(f"the page is compressed as {encoding[:40]}, which was not requested")
    unpack = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
    found, sent = bytearray(), 0
    async for piece in response.aiter_raw(_PIECE):
        sent += len(piece)
        try:
            found += piece if unpack is None else unpack.decompress(piece, MAX_BYTES + 1 - len(found))
        except zlib.error:
            raise PageRefusedError("the page is corrupt: it cannot be decompressed") from None
        if len(found) > MAX_BYTES or sent > MAX_SENT_BYTES:
            return bytes(found[:MAX_BYTES]), True
    return bytes(found), False


# A server's content as text for a model: which types and encodings can be read, and without markup. Pure.

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_CHARACTER_SET = re.compile(
    r"utf-?(8|16|32)\b|us-?ascii|ascii|iso-?8859|latin|windows-12|cp(12|8|9)|koi8|shift_?jis|euc|gb|big5|iso2022|mac",
    re.IGNORECASE,
)
"""Python has codecs that are not character sets, and some that take minutes on a hostile input."""
_HTML = ("text/html", "application/xhtml+xml")
_TEXT_TYPES = re.compile(r"text/[\w.+-]+|application/([\w.-]+\+)?(json|xml|yaml|toml|javascript|x-sh)")
_BLANKS = re.compile(r"\n{3,}")
# Up to the next one: otherwise each of many that never end would be read to the end of the page.
_DATA_URL = re.compile(r"\(data:(?:(?!\(data:)[^)\s]){100,}+\)")


def is_readable(content_type: str) -> bool:
    """Whether a model can read this type (a Content-Type header); no type counts as HTML."""
    kind = media_type(content_type)
    return not kind or kind in _HTML or _TEXT_TYPES.fullmatch(kind) is not None


def media_type(content_type: str) -> str:
    """The type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def text_of(content: bytes, content_type: str) -> str:
    """The content as text, HTML as Markdown. Raises PageRefusedError if it cannot be read."""
    text = _decode(content, content_type)
    if media_type(content_type) in (*_HTML, "") and "<" in text:
        text = _markdown(text)
    return _BLANKS.sub("\n\n", _DATA_URL.sub("(data)", text.replace("\x00", ""))).strip()


def _decode(content: bytes, content_type: str) -> str:
    in_header = re.search(r"charset\s*=\s*\"?([\w.:-]{1,40})", content_type, re.IGNORECASE)
    in_content = _CHARSET.search(content[:2048])
    charset = in_header[1] if in_header else in_content[1].decode() if in_content else "utf-8"
    if not _CHARACTER_SET.match(charset):
        charset = "utf-8"
    try:
        return codecs.lookup(charset).decode(content, "replace")[0]
    except (LookupError, UnicodeError):
        return content.decode("utf-8", "replace")


def _markdown(html: str) -> str:
    from html_to_markdown import convert  # 20 MB on disk, and few workers ever fetch a page

    try:
        return convert(html).content or ""
    except Exception as error:  # noqa: BLE001 - a library of another language; whatever it says, the page is at fault
        raise PageRefusedError(f"the page's HTML cannot be read ({type(error).__name__})") from None
