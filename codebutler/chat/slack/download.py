"""Downloads files from Slack: only those shared in a given channel, only from Slack's own hosts, only up to a
size.

Slack: ``url_private`` needs the bot's token as a bearer, and answers a wrong token or a missing scope with
status 200 and its login page. So the token goes to trusted hosts only, redirects are followed by hand, and
unexpected HTML is refused.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from codebutler.chat.payload import section, text_in
from codebutler.chat.port import ATTEMPTS, RETRY_S, Download, Take, file_details
from codebutler.chat.slack.answers import is_recording, shares_in
from codebutler.chat.slack.http import retry_after_s
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import File
from codebutler.domain.refs import ConversationRef
from codebutler.protocol.messages import MAX_FETCH_BYTES

if TYPE_CHECKING:
    from codebutler.chat.slack.api import SlackApi

_TAG = re.compile(r"<[^<>]*>")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&nbsp;": " ", "&amp;": "&"}
CHUNK_BYTES = 256 * 1024
MAX_REDIRECTS = 3
MAX_TRANSCRIPT_BYTES = 2**20
REDIRECTS = frozenset({301, 302, 303, 307, 308})
TRANSCRIPT_WAIT_S = 2.0
TRANSCRIPT_LOOKS = 5
_FILE_ID = re.compile(r"F[A-Z0-9]{2,40}")
_HTML = re.compile(rb"(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)


def spoken(captions: str) -> str:
    """The captions' texts in order, as one line; "" if these are no captions."""
    blocks = re.split(r"\n[ \t]*\n", captions.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n"))
    if not blocks[0].startswith("WEBVTT"):
        return ""
    return " ".join(" ".join(_cue(block)).strip() for block in blocks[1:] if "-->" in block).strip()


def _cue(block: str) -> list[str]:
    lines = block.split("\n")
    timing = next(number for number, line in enumerate(lines) if "-->" in line)
    return [_plain(line) for line in lines[timing + 1 :] if line.strip()]


def _plain(line: str) -> str:
    line = _TAG.sub("", line)
    for entity, character in _ENTITIES.items():
        line = line.replace(entity, character)
    return line.strip()


class Downloads:
    """Fetches for workers, which are less trusted than we are: they name a file, never an address."""

    def __init__(self, api: SlackApi, clock: Clock, max_bytes: int = MAX_FETCH_BYTES) -> None:
        self._api = api
        self._clock = clock
        self._max_bytes = max_bytes

    async def fetch(self, channel: ConversationRef, file_id: str, take: Take) -> Download:
        """Pass the file to ``take`` piece by piece, or return Slack's own transcript of a voice clip instead.

        Raises ChatError with a code: file_not_found (also for a file that is not shared in ``channel``),
        untrusted_host, login_page, too_large, refused, unreachable, or Slack's own.
        """
        if not _FILE_ID.fullmatch(file_id):
            raise ChatError(code="file_not_found")
        info = await self._info(channel, file_id)
        if transcript := await self._transcript(channel, info):
            return Download(file=_file(file_id, info), transcript=transcript)
        size_bytes = _number(info, "size")
        if size_bytes > self._max_bytes:
            raise ChatError(code="too_large")
        url = text_in(info, "url_private_download") or text_in(info, "url_private")
        html_expected = "html" in text_in(info, "mimetype") or text_in(info, "filetype") == "html"
        begun = False

        async def taken(piece: bytes) -> None:
            nonlocal begun
            begun = True
            await take(piece)

        for left in reversed(range(ATTEMPTS)):
            try:
                await self._content(
                    url, self._max_bytes, taken, html_expected=html_expected, size_bytes=size_bytes
                )
                break
            except (ChatRateLimitedError, ChatUnreachableError) as error:
                if begun or not left:
                    raise
                await self._clock.sleep(_wait_s(error))
        return Download(file=_file(file_id, info))

    async def _info(self, channel: ConversationRef, file_id: str) -> Mapping[str, Any]:
        info = await file_details(lambda: self._api.file_info(file_id), self._clock)
        if channel not in shares_in(info):
            raise ChatError(code="file_not_found")
        return info

    async def _transcript(self, channel: ConversationRef, info: Mapping[str, Any]) -> str:
        """Slack's complete transcript; "" without one."""
        told = section(info, "transcription")
        for _ in range(TRANSCRIPT_LOOKS):
            if told.get("status") != "processing":
                break
            await self._clock.sleep(TRANSCRIPT_WAIT_S)
            info = await self._info(channel, text_in(info, "id"))
            told = section(info, "transcription")
        if told.get("status") != "complete":
            return ""
        preview = section(told, "preview")
        if preview.get("has_more") is False:
            return text_in(preview, "content").strip()
        return await self._captions(text_in(info, "vtt"))

    async def _captions(self, url: str) -> str:
        """The whole transcript from the clip's captions. Without them the clip itself is used."""
        found = bytearray()

        async def keep(piece: bytes) -> None:
            found.extend(piece)

        if not url:
            return ""
        try:
            await self._content(url, MAX_TRANSCRIPT_BYTES, keep, html_expected=False)
        except ChatError:
            return ""
        return spoken(found.decode("utf-8", "replace"))

    async def _content(
        self, url: str, max_bytes: int, take: Take, *, html_expected: bool, size_bytes: int = 0
    ) -> None:
        """``size_bytes``: the file's, 0 if unknown."""
        here = _parsed(url)
        if not self._trusted(here):
            raise ChatError(code="untrusted_host")
        for _hop in range(MAX_REDIRECTS + 1):
            async with self._api.open(here, with_token=self._trusted(here)) as answer:
                if answer.status not in REDIRECTS:
                    _check(answer, max_bytes, html_expected=html_expected)
                    if size_bytes and _is_error(answer, size_bytes):
                        raise ChatUnreachableError(code="refused")
                    await _stream(
                        answer.content.iter_chunked(CHUNK_BYTES), max_bytes, take, html_expected=html_expected
                    )
                    return
                here = self._next(here, answer.headers.get("Location", ""))
        raise ChatError(code="refused")

    def _next(self, here: URL, location: str) -> URL:
        there = here.join(_parsed(location))
        if not self._trusted(there) and (there.scheme != "https" or _is_internal(there.host or "")):
            raise ChatError(code="untrusted_host")
        return there

    def _trusted(self, url: URL) -> bool:
        """May the token go there? To Slack over TLS, or to the configured server."""
        if url.user is not None or url.password is not None:
            return False
        home = _parsed(self._api.base_url)
        if _is_slack(home):
            return _is_slack(url)
        return bool(url.host) and (url.scheme, url.host, url.port) == (home.scheme, home.host, home.port)


def _wait_s(error: ChatError) -> float:
    return error.retry_after_s if isinstance(error, ChatRateLimitedError) else RETRY_S


def _check(answer: aiohttp.ClientResponse, max_bytes: int, *, html_expected: bool) -> None:
    if answer.status == 429:
        raise ChatRateLimitedError(retry_after_s(answer.headers.get("Retry-After")))
    if answer.status >= 500:
        raise ChatUnreachableError(code="refused")
    if answer.status != 200:
        raise ChatError(code="refused")
    if answer.content_type in ("text/html", "application/xhtml+xml") and not html_expected:
        raise ChatError(code="login_page")
    if (answer.content_length or 0) > max_bytes:
        raise ChatError(code="too_large")


def _is_error(answer: aiohttp.ClientResponse, size_bytes: int) -> bool:
    """Whether it is an answer of the Web API instead of a file of that size."""
    is_whole = answer.content_length is not None and "Content-Encoding" not in answer.headers
    return is_whole and answer.content_type == "application/json" and answer.content_length != size_bytes


async def _stream(pieces: AsyncIterator[bytes], max_bytes: int, take: Take, *, html_expected: bool) -> None:
    size_bytes = 0
    async for piece in pieces:
        if size_bytes == 0 and not html_expected and _HTML.match(piece):
            raise ChatError(code="login_page")
        size_bytes += len(piece)
        if size_bytes > max_bytes:
            raise ChatError(code="too_large")
        await take(piece)


def _parsed(url: str) -> URL:
    try:
        parsed = URL(url, encoded=True)
        _ = parsed.port  # looked at late, and wrong ones raise
    except ValueError:
        raise ChatError(code="untrusted_host") from None
    return parsed


def _is_slack(url: URL) -> bool:
    host = (url.host or "").lower()
    return url.scheme == "https" and url.port == 443 and (host == "slack.com" or host.endswith(".slack.com"))


def _is_internal(host: str) -> bool:
    """A name or address of this machine or its network, to which no chat service would send anybody."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))


def _file(file_id: str, info: Mapping[str, Any]) -> File:
    return File(
        id=file_id,
        name=text_in(info, "name"),
        mimetype=text_in(info, "mimetype"),
        size_bytes=_number(info, "size"),
        is_voice=is_recording(text_in(info, "subtype"), text_in(info, "name")),
    )


def _number(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) else 0
