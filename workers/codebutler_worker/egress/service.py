"""A model's service behind the proxy: its address, the keys added to an agent's requests, and the tokens that its
responses report. Pure.

The agent holds a token instead, which is worthless anywhere else. A request with any other key is refused: somebody
else's key would carry data from inside the sandbox into their account.

The figures are read as responses pass: an agent's program reports only its own requests, and other programs inside may
make requests too. We read those of Anthropic's Messages API and OpenAI's chat completions, streamed or not. Per
response the largest of each figure counts, since a stream sends running totals. Inside a text, quotes are escaped, so a
figure's name there does not match. A response without figures (llama.cpp, many gateways) is estimated from its size;
otherwise no budget would cover it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from codebutler_worker.egress.hosts import HostPort, place
from codebutler_worker.egress.http import Mask, RequestHead

Side = Literal["input", "cached", "output"]
FIELDS: Mapping[bytes, tuple[Side, ...]] = MappingProxyType(
    {
        b"input_tokens": ("input",),
        b"cache_creation_input_tokens": ("input",),
        b"cache_read_input_tokens": ("input", "cached"),
        b"prompt_tokens": ("input",),
        b"cached_tokens": ("cached",),
        b"output_tokens": ("output",),
        b"completion_tokens": ("output",),
    }
)
_FIGURE = re.compile(rb'"(' + b"|".join(FIELDS) + rb')"\s{0,8}:\s{0,8}([0-9]{1,12})(?=[^0-9])')
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})")
_LONGEST = 72
"""The longest match in bytes: a name, its figure and what is between them."""
FREE = ("/count_tokens",)
"""Endpoints whose responses contain figures that cost nothing."""
PAID = ("/completions", "/messages", "/responses", "/batches", "/embeddings")
"""Endpoints that cost money, whether or not they report figures."""
BYTES_PER_TOKEN = 4

KEY_HEADERS = ("x-api-key", "authorization", "api-key", "x-goog-api-key", "x-auth-token")
BEARER = "Bearer "
DROPPED = ("cookie", "accept-encoding")
"""A cookie is a key too, and compressed responses cannot be searched."""
ECHOES = ("TRACE", "TRACK", "DEBUG")
"""Methods whose response echoes the request, including the key (RFC 9110, 9.3.8)."""
SECRET_BYTES = 12
"""A shorter value could be any word in a response."""


class TokenMeter(Struct):
    """The tokens of all responses so far; ``cached`` are included in ``input``."""

    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """Input and output tokens together; cached ones count in full."""
        return self.input + self.output

    def reading(self, path: str, asked_bytes: int = 0) -> AnswerMeter | None:
        """A meter for the response to a request of ``asked_bytes``; None if it costs nothing."""
        path = path.partition("?")[0]
        if path.endswith(FREE):
            return None
        # As servers read it, which decode it, and some of which ignore case and a slash at the end.
        is_paid = unquote(path).rstrip("/").lower().endswith(PAID)
        return AnswerMeter(self, asked_bytes, is_paid=is_paid)


class AnswerMeter(Struct):
    """Reads one response, piece by piece."""

    gauge: TokenMeter
    asked_bytes: int = 0
    is_paid: bool = False
    _seen: dict[bytes, int] = msgspec.field(default_factory=dict)
    _end: bytes = b""
    _status: int = 100
    _bytes: int = 0
    _events: int = 0

    def ask(self, size_bytes: int) -> None:
        """The request's body has so many more bytes."""
        self.asked_bytes += size_bytes

    def add(self, piece: bytes) -> None:
        """Read the next piece. Each head is at the start of one; the final one follows interim ones (1xx)."""
        if self._status < 200 and (found := _STATUS.match(piece)):
            self._status = int(found[1])
        self._bytes += len(piece)
        self._events += piece.count(b"data:")
        data = self._end + piece
        for found in _FIGURE.finditer(data):
            self._count(found[1], int(found[2]))
        self._end = data[-_LONGEST:]

    def end(self) -> None:
        """The response is complete. In a stream, one event is about one token."""
        if self.is_paid and not self._seen and self._status == 200:
            self.gauge.input += self.asked_bytes // BYTES_PER_TOKEN
            self.gauge.output += self._events or self._bytes // BYTES_PER_TOKEN

    def _count(self, name: bytes, figure: int) -> None:
        more = figure - self._seen.get(name, 0)
        if more <= 0:
            return
        self._seen[name] = figure
        for side in FIELDS[name]:
            setattr(self.gauge, side, getattr(self.gauge, side) + more)


class WrongKeyError(Exception):
    """The request has a key that is not the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelService:
    """A model's service. ``keys``: header (lower case) -> its whole value; ``extra``: headers added to every request
    with the token. Without keys, the agent's own pass unchanged, and every request gets ``extra``."""

    base_url: str
    token: str = field(repr=False, default="")
    keys: tuple[tuple[str, str], ...] = field(repr=False, default=())
    extra: tuple[tuple[str, str], ...] = field(repr=False, default=())

    @property
    def secure(self) -> bool:
        """Whether it uses TLS."""
        return urlsplit(self.base_url).scheme == "https"

    @property
    def place(self) -> HostPort | None:
        """Its host and port; None if its URL is invalid."""
        parts = urlsplit(self.base_url)
        return place(parts.netloc.rpartition("@")[2], 443 if self.secure else 80)

    @property
    def path(self) -> str:
        """The prefix of each request's path, without a final slash."""
        return urlsplit(self.base_url).path.rstrip("/")

    def has(self, target: str) -> bool:
        """Whether a request's path is within the service, in a way that no two parsers read differently."""
        path = target.partition("?")[0]
        # Some servers treat what follows a semicolon as a parameter of the path segment: "..;x" is "..".
        steps = [unquote(step).partition(";")[0] for step in re.split(r"[/\\]", unquote(path))]
        return path.startswith(f"{self.path}/") and not {".", ".."} & set(steps)

    def inside(self, port: int) -> str:
        """Its base URL for the agent, with the proxy on ``port`` of the loopback."""
        return f"http://127.0.0.1:{port}{self.path}"

    def onward(self, head: RequestHead) -> RequestHead:
        """The request as sent to the service. Raises WrongKeyError."""
        assert self.place is not None
        host = urlsplit(self.base_url).netloc.rpartition("@")[2]
        names = tuple(name.lower() for name, _ in self.extra)
        sent = head.onward(head.target, host).without(*names, *(DROPPED if self.mask else ()))
        if not self.keys:
            return RequestHead(sent.method, sent.target, (*sent.headers, *self.extra))
        real, has_token = dict(self.keys), False
        headers = []
        for name, value in sent.headers:
            # Gateways treat X_Api_Key as X-Api-Key.
            known = name.lower().replace("_", "-")
            if known in KEY_HEADERS:
                given = value.removeprefix(BEARER) if known == "authorization" else value
                if known not in real or not hmac.compare_digest(given.encode(), self.token.encode()):
                    raise WrongKeyError
                has_token = True
                headers.append((known, real[known]))
            else:
                headers.append((name, value))
        # They may hold a login too, and with an open network others on this machine reach the proxy.
        return RequestHead(sent.method, sent.target, (*headers, *(self.extra if has_token else ())))

    @property
    def mask(self) -> Mask | None:
        """A filter for its responses before an agent sees them: a service may echo the request."""
        values = (value.removeprefix(BEARER).encode() for _, value in (*self.keys, *self.extra))
        secrets = tuple(value for value in values if len(value) >= SECRET_BYTES)
        return Concealer(secrets) if secrets else None


class Concealer:
    """Replaces each of ``secrets`` by as many x, even if it is split between pieces. Holds back only what may be the
    beginning of a secret."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held = b""

    def __call__(self, piece: bytes) -> bytes:
        """What may be forwarded now; b"" flushes the rest."""
        data = self._pattern.sub(lambda found: b"x" * len(found[0]), self._held + piece)
        begun = 0 if not piece else self._begun(data)
        self._held = data[len(data) - begun :]
        return data[: len(data) - begun]

    def _begun(self, data: bytes) -> int:
        """The number of bytes at the end that begin a secret."""
        longest = min(len(self._secrets[0]) - 1, len(data))
        ends = (length for length in range(longest, 0, -1) if self._begins(data[-length:]))
        return next(ends, 0)

    def _begins(self, end: bytes) -> bool:
        return any(secret.startswith(end) for secret in self._secrets)


def parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``Name: value`` lines, the format of ANTHROPIC_CUSTOM_HEADERS."""
    pairs = (line.partition(":") for line in text.splitlines())
    return tuple((name.strip(), value.strip()) for name, colon, value in pairs if colon and name.strip())
