"""OpenAIModel: any service that speaks OpenAI's chat completions, over HTTP.

The key is only here and in the requests' headers. Redirects are not followed: they would take it elsewhere.
"""

from __future__ import annotations

import math
import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler_worker.agents.backend import Refusal, Thinking, Writing
from codebutler_worker.agents.native import wire
from codebutler_worker.agents.native.model import (
    Endpoint,
    ModelError,
    ModelReply,
    ModelRequest,
)
from codebutler_worker.agents.native.services import Dialect, learned, pause_s, refusal, retry_after_s
from codebutler_worker.internet.remote import UNUSABLE, proxy_of

# Server-sent events, as far as chat completions use them: bytes in, the ``data`` of each event out.
#
# Source: the HTML standard, "Interpreting an event stream": lines end with LF, CR LF or CR, a line that begins with a
# colon is a comment, several data lines are joined, an empty line ends the event.

MAX_EVENT_BYTES = 8 * 2**20


class EventTooLargeError(ValueError):
    """An event exceeds the size limit."""


class EventDecoder:
    """Takes chunks that may be split anywhere."""

    def __init__(self, limit_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        """The data of the events that ``chunk`` completes. Raises EventTooLargeError."""
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = chunk.endswith(b"\r")
        *lines, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events: list[str] = []
        for line in lines:
            self._line += line
            whole = bytes(self._line)
            self._line.clear()
            events += self._take(whole)
        self._line += rest
        if self._size + len(self._line) > self._limit_bytes:
            raise EventTooLargeError
        return events

    def _take(self, line: bytes) -> list[str]:
        if not line:
            data, self._data, self._size = self._data, [], 0
            return [b"\n".join(data).decode(errors="replace")] if data else []
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(value)
        return []


if TYPE_CHECKING:
    import ssl

    import httpx

MAX_ANSWER_BYTES = 32 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
HIDDEN = "[key]"
MOST_LESSONS = 6
"""How often a request is sent again in another dialect."""
LOOK_S = 0.25
"""The shortest time between two updates of an answer in progress."""


class HttpTimeouts(Struct, frozen=True):
    """``silence_s``: how long the service may send nothing, even in the middle of an answer."""

    connect_s: float = 10.0
    silence_s: float = 180.0
    write_s: float = 60.0


class OpenAIModel:
    """A model at such a service. ``env`` names the proxies, which the worker's own scrubbed environment does not;
    ``chance`` returns a number in [0, 1)."""

    def __init__(
        self,
        endpoint: Endpoint,
        clock: Clock,
        env: Mapping[str, str] | None = None,
        patience: HttpTimeouts | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = endpoint.model
        self._endpoint = endpoint
        self._clock = clock
        self._env = env or {}
        self._patience = patience or HttpTimeouts()
        self._chance = chance
        self._dialect = Dialect("own" if endpoint.replay_reasoning else "never")
        """What we have learned about the service so far."""
        self._client: httpx.AsyncClient | None = None

    async def ask(self, prompt: ModelRequest) -> AsyncGenerator[Refusal | Writing | Thinking | ModelReply]:
        """What people may see meanwhile, then one ModelReply. Raises ModelError. Closing the iterator cancels the
        request."""
        retries = lessons = 0
        while True:
            try:
                async with aclosing(self._try(prompt)) as answer:
                    async for event in answer:
                        yield event
            except ModelError as error:
                better = learned(self._dialect, error.said) if lessons < MOST_LESSONS else None
                if better is not None:
                    self._dialect, lessons = better, lessons + 1
                    continue
                wait_s = pause_s(error, retries, self._chance())
                if wait_s is None:
                    raise
                retries += 1
                yield Refusal(f"{error}; retrying in {wait_s:.0f} s")
                await self._clock.sleep(wait_s)
            else:
                return

    async def close(self) -> None:
        """Close connections. It may be used again afterwards."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _try(self, prompt: ModelRequest) -> AsyncGenerator[Writing | Thinking | ModelReply]:
        import httpx  # half a megabyte that most workers never need

        url = f"{self._endpoint.base_url.rstrip('/')}/chat/completions"
        body = wire.body(self._endpoint.model, prompt, self._dialect, self._endpoint.answer_tokens)
        try:
            async with self._opened().stream("POST", url, content=body) as response:
                if response.status_code != 200:
                    raise await self._refusal(response)
                async with aclosing(self._listen(response, prompt)) as answer:
                    async for event in answer:
                        yield event
        except httpx.TimeoutException:
            raise ModelError("unreachable", "the model service did not answer in time") from None
        except EventTooLargeError:
            raise ModelError("refused", "the model service sent too much data") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            kind = type(error).__name__
            raise ModelError(
                "unreachable", f"the model service cannot be reached ({kind}): check native.baseUrl"
            ) from None

    async def _listen(
        self, response: httpx.Response, prompt: ModelRequest
    ) -> AsyncGenerator[Writing | Thinking | ModelReply]:
        assembler = wire.Assembler(prompt.tools)
        if "json" in response.headers.get("content-type", ""):
            assembler.feed(b"".join([piece async for piece in _bounded(response)]))
        else:
            decoder, told, told_s = EventDecoder(), 0, -math.inf
            async with aclosing(_bounded(response)) as pieces:
                async for piece in pieces:
                    for data in decoder.feed(piece):
                        assembler.feed(data)
                    if assembler.over:
                        break
                    now_s = self._clock.monotonic()
                    if assembler.pieces > told and now_s - told_s >= LOOK_S:
                        told, told_s = assembler.pieces, now_s
                        yield Writing(assembler.text) if assembler.text else Thinking("")
        if not assembler.finish:
            raise ModelError("unreachable", "the model service broke off in the middle of an answer")
        yield assembler.reply()

    async def _refusal(self, response: httpx.Response) -> ModelError:
        content = bytearray()
        async for piece in response.aiter_bytes():
            content += piece
            if len(content) > MAX_ERROR_BYTES:
                break
        code, said, words = told(bytes(content))
        if self._endpoint.key:
            said, words = (text.replace(self._endpoint.key, HIDDEN) for text in (said, words))
        wait_s = retry_after_s(response.headers, self._clock.now())
        return refusal(response.status_code, code, said, wait_s, words)

    def _opened(self) -> httpx.AsyncClient:
        import httpx

        if self._client is None:
            key, patience = self._endpoint.key, self._patience
            headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
            if key:
                headers["Authorization"] = f"Bearer {key}"
            timeout = httpx.Timeout(
                patience.silence_s,
                connect=patience.connect_s,
                write=patience.write_s,
                pool=patience.connect_s,
            )
            try:
                self._client = httpx.AsyncClient(
                    headers=headers,
                    timeout=timeout,
                    proxy=proxy_of(self._endpoint.base_url, self._env),
                    verify=self._certificates(),
                    trust_env=False,
                )
            except (ValueError, ImportError):
                why = UNUSABLE.format(key="native.apiKey")
                raise ModelError("refused", f"the model service cannot be reached: {why}") from None
        return self._client

    def _certificates(self) -> ssl.SSLContext | bool:
        file = self._env.get("SSL_CERT_FILE")
        if not file:
            return True
        import ssl

        return ssl.create_default_context(cafile=file)


async def _bounded(response: httpx.Response) -> AsyncGenerator[bytes]:
    """The response's bytes. Raises EventTooLargeError if there are too many."""
    size = 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise EventTooLargeError
        yield piece


def told(content: bytes) -> tuple[str, str, str]:
    """The code (or type) of an error from a service, its message, and its whole text; "" for what is missing."""
    try:
        body = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeError):
        return "", "", ""
    # Gemini sends a list with one error.
    body = body[0] if isinstance(body, list) and body else body
    return wire.error_words(body.get("error", body) if isinstance(body, dict) else body)
