"""HTTP services that we call with our own key, one response per request: web search, speech and images."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from codebutler.config.schema import OpenAISection, TavilySection
from codebutler.domain.errors import CodeButlerError

if TYPE_CHECKING:
    import httpx

CONNECT_S = 10.0
DETAIL_CHARS = 200
UNUSABLE = "use a key of plain characters ({key}), and http://HOST:PORT for a proxy (HTTPS_PROXY)"
"""The HTTP library takes no other ones: it raises ValueError, or ImportError for SOCKS."""
T = TypeVar("T")


def proxy_of(url: str, env: Mapping[str, str]) -> str | None:
    """The proxy that ``env`` names for ``url`` (HTTP_PROXY, HTTPS_PROXY, NO_PROXY), None for none. Pure. The worker's
    own environment is scrubbed and names none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    direct = ("localhost", "127.0.0.1", "::1", *env.get("NO_PROXY", "").split(","))
    if any(_covers(rule.strip().lstrip("."), host) for rule in direct):
        return None
    return env.get(f"{parts.scheme.upper()}_PROXY") or None


def _covers(rule: str, host: str) -> bool:
    return rule == "*" or (bool(rule) and (host == rule or host.endswith(f".{rule}")))


class RemoteError(CodeButlerError):
    """The service gave no usable answer; one line that says what to do. It never contains the key."""


class WebService(Struct, frozen=True):
    """A service, known to people by ``name``; its key and address are in ``section`` of the configuration.

    Keeps no connection: each request opens its own. ``env`` names the proxies.
    """

    name: str
    section: str
    base_url: str
    api_key: str
    env: Mapping[str, str]
    limit_bytes: int

    async def post(self, path: str, timeout_s: float, answer: type[T], what: str, **content: Any) -> T:
        """The response to a POST, parsed as ``answer``; ``what`` is its name for people. ``content`` goes to httpx
        (``json``, ``data``, ``files``). Raises RemoteError."""
        status, body = await self._post(path, timeout_s, content)
        if status in (401, 403):
            raise RemoteError(f"{self.name} refuses the key (status {status}): check {self.section}.apiKey")
        if status in (429, 432, 433):
            raise RemoteError(f"{self.name} is at its limit: try later, or check your quota")
        if status != 200:
            raise RemoteError(f"{self.name} refused (status {status}){_detail(body)}")
        try:
            return msgspec.json.decode(body, type=answer)
        except (msgspec.DecodeError, UnicodeError):
            raise RemoteError(f"{self.name} sent no {what}: check {self.section}.baseUrl") from None

    async def _post(self, path: str, timeout_s: float, content: dict[str, Any]) -> tuple[int, bytes]:
        import httpx  # half a megabyte that most workers never need

        url = f"{self.base_url.rstrip('/')}/{path}"
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_S)
        try:
            async with (
                httpx.AsyncClient(timeout=timeout, proxy=proxy_of(url, self.env), trust_env=False) as client,
                client.stream("POST", url, headers=headers, **content) as response,
            ):
                body = await _read_at_most(response, self.limit_bytes)
        except httpx.TimeoutException:
            raise RemoteError(f"{self.name} did not answer in time: try again") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise RemoteError(
                f"{self.name} cannot be reached ({type(error).__name__}): check {self.section}.baseUrl"
            ) from None
        except (ValueError, ImportError):
            why = UNUSABLE.format(key=f"{self.section}.apiKey")
            raise RemoteError(f"{self.name} cannot be reached: {why}") from None
        if body is None:
            raise RemoteError(f"{self.name} sent too much: ask for less")
        return response.status_code, body


async def _read_at_most(response: httpx.Response, limit_bytes: int) -> bytes | None:
    """The whole decompressed response; None if it is longer. Raises httpx.HTTPError."""
    found = bytearray()
    async for piece in response.aiter_bytes():
        found += piece
        if len(found) > limit_bytes:
            return None
    return bytes(found)


def _detail(body: bytes) -> str:
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return ""
    error = answer.get("error") if isinstance(answer, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return f": {' '.join(message.split())[:DETAIL_CHARS]}" if isinstance(message, str) else ""


# Searching the web with Tavily. Source: Tavily API reference, ``POST /search``.

SEARCH_S = 60.0
MAX_RESULTS_BYTES = 2 * 2**20
CONTENT_CHARS = 1500


class Hit(msgspec.Struct, frozen=True):
    """One search result."""

    title: str = ""
    url: str = ""
    content: str = ""


class _SearchResults(msgspec.Struct, frozen=True):
    results: tuple[Hit, ...] = ()


class WebSearch(Struct, frozen=True):
    """Searches the web. ``env`` names the proxies."""

    settings: TavilySection
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def available(self) -> bool:
        """Whether the service is configured."""
        return bool(self.settings.api_key) or self.settings.base_url != TavilySection().base_url

    async def search(self, query: str, depth: Literal["basic", "advanced"], limit: int) -> tuple[Hit, ...]:
        """The best pages, best first, with shortened texts. Raises RemoteError."""
        if not self.available:
            raise RemoteError("web_search needs a key: set tavily.apiKey (or TAVILY_API_KEY)")
        settings = self.settings
        remote = WebService(
            "Tavily", "tavily", settings.base_url, settings.api_key, self.env, MAX_RESULTS_BYTES
        )
        body = {"query": query, "search_depth": depth, "max_results": limit, "include_answer": False}
        found = await remote.post("search", SEARCH_S, _SearchResults, "search results", json=body)
        return tuple(
            Hit(
                " ".join(hit.title.split())[:200],
                "".join(hit.url.split())[:2048],
                hit.content[:CONTENT_CHARS],
            )
            for hit in found.results[:limit]
        )


# Speech and images: ``audio/transcriptions`` and ``images/generations`` of OpenAI and compatible services. Source:
# OpenAI API reference, Audio and Images; Groq, faster-whisper and LocalAI servers speak the same.

TRANSCRIBE_S = 120.0
IMAGE_S = 240.0
MAX_AUDIO_BYTES = 25 * 2**20
MAX_ANSWER_BYTES = 32 * 2**20
MAX_PROMPT_CHARS = 32_000
NEEDS_KEY = "set openai.apiKey (or openai.baseUrl of a service that needs none)"


class MediaService(Struct, frozen=True):
    """Transcribes speech and draws images. ``env`` names the proxies."""

    settings: OpenAISection
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def available(self) -> bool:
        """Whether the service is configured."""
        return bool(self.settings.api_key) or self.settings.base_url != OpenAISection().base_url

    async def transcribe(self, filename: str, content: bytes) -> str:
        """What is said in the recording ("" for silence). Raises RemoteError."""
        self._require("to transcribe voice messages, ")
        if len(content) > MAX_AUDIO_BYTES:
            raise RemoteError(
                f"the recording is longer than the service accepts ({MAX_AUDIO_BYTES // 2**20} MB)"
            )
        form = {"model": self.settings.transcription_model, "response_format": "json"}
        if self.settings.language:
            form["language"] = self.settings.language
        files = {"file": (filename, content)}
        answer = await self._post("audio/transcriptions", TRANSCRIBE_S, data=form, files=files)
        text = answer.get("text")
        if not isinstance(text, str):
            raise RemoteError("the transcription service sent no text")
        return " ".join(text.split())

    async def draw(self, prompt: str) -> bytes:
        """An image for the prompt, in the service's encoding (usually PNG). Raises RemoteError."""
        self._require("to create images, ")
        if len(prompt) > MAX_PROMPT_CHARS:
            raise RemoteError(f"the description is longer than {MAX_PROMPT_CHARS} characters: shorten it")
        body: dict[str, Any] = {"model": self.settings.image_model, "prompt": prompt, "n": 1}
        if self.settings.image_model.startswith("dall-e"):
            # Newer models do this by default and reject the option.
            body["response_format"] = "b64_json"
        answer = await self._post("images/generations", IMAGE_S, json=body)
        try:
            # Inline data only: with a URL we would fetch whatever the service names.
            return base64.b64decode(answer["data"][0]["b64_json"], validate=True)
        except (KeyError, IndexError, TypeError, ValueError, binascii.Error):
            raise RemoteError("the image service sent no picture (b64_json)") from None

    def _require(self, purpose: str) -> None:
        if not self.available:
            raise RemoteError(f"{purpose}{NEEDS_KEY}")

    async def _post(self, path: str, timeout_s: float, **content: Any) -> dict[str, Any]:
        settings = self.settings
        remote = WebService(
            "the openai service", "openai", settings.base_url, settings.api_key, self.env, MAX_ANSWER_BYTES
        )
        return await remote.post(path, timeout_s, dict[str, Any], "usable answer", **content)
