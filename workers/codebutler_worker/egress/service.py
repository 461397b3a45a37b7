"""A model's service behind the proxy: where it is, and the keys that are added to what an agent sends it. Pure.

The agent holds a token instead, which is worth nothing anywhere else. Whoever sends another key is refused: a key of
somebody else's would carry what is in here into that somebody's account.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal
from urllib.parse import unquote, urlsplit

from codebutler_worker.egress.hosts import HostPort, place
from codebutler_worker.egress.http import Mask, RequestHead

# What a model's service says its answers cost, read as they pass: an agent's program tells only of its own questions,
# and whatever runs beside it may ask, too.
#
# Counted are the figures of Anthropic's Messages API and of OpenAI's chat completions, in one piece or streamed. Each
# answer has the largest of each: a stream tells running totals. A name in a text has backslashes before its quotes. An
# answer without figures (llama.cpp, many gateways) is reckoned by its size: what is not counted would meet no budget.

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
_FINE = b"HTTP/1.1 200"
_LONGEST = 72
"""Bytes of a name, its figure and what stands between them."""
FREE = ("/count_tokens",)
"""What answers with figures that nobody pays for."""
PAID = ("/chat/completions", "/messages", "/responses")
"""What is paid for, whether or not it says so."""
BYTES_PER_TOKEN = 4


@dataclass(slots=True)
class TokenMeter:
    """The tokens of all answers so far; ``cached`` are among the ``input``."""

    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """Tokens in and out together; what came from a cache is counted as any other."""
        return self.input + self.output

    def reading(self, path: str, asked_bytes: int = 0) -> AnswerMeter | None:
        """For the answer to one request of so many bytes; None if it costs nothing."""
        path = path.partition("?")[0]
        return None if path.endswith(FREE) else AnswerMeter(self, asked_bytes, is_paid=path.endswith(PAID))


@dataclass(slots=True)
class AnswerMeter:
    """One answer, piece by piece."""

    gauge: TokenMeter
    asked_bytes: int = 0
    is_paid: bool = False
    _seen: dict[bytes, int] = field(default_factory=dict)
    _end: bytes = b""
    _head: bytes = b""
    _bytes: int = 0
    _events: int = 0

    def add(self, piece: bytes) -> None:
        """It goes on so."""
        self._head = self._head or piece[: len(_FINE)]
        self._bytes += len(piece)
        self._events += piece.count(b"data:")
        data = self._end + piece
        for found in _FIGURE.finditer(data):
            self._count(found[1], int(found[2]))
        self._end = data[-_LONGEST:]

    def end(self) -> None:
        """Nothing more comes. An event of a stream is about a token."""
        if self.is_paid and not self._seen and self._head == _FINE:
            self.gauge.input += self.asked_bytes // BYTES_PER_TOKEN
            self.gauge.output += self._events or self._bytes // BYTES_PER_TOKEN

    def _count(self, name: bytes, figure: int) -> None:
        more = figure - self._seen.get(name, 0)
        if more <= 0:
            return
        self._seen[name] = figure
        for side in FIELDS[name]:
            setattr(self.gauge, side, getattr(self.gauge, side) + more)


KEY_HEADERS = ("x-api-key", "authorization", "api-key", "x-goog-api-key", "x-auth-token")
BEARER = "Bearer "
DROPPED = ("cookie", "accept-encoding")
"""A cookie is a key, too; and what is compressed cannot be looked through."""
ECHOES = ("TRACE", "TRACK", "DEBUG")
"""Methods whose answer is the request: with the key (RFC 9110, 9.3.8)."""
SECRET_BYTES = 12
"""What is shorter may be any word of an answer."""


class WrongKeyError(Exception):
    """The request carries a key that is not the token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelService:
    """``keys``: header (lower case) -> its whole value; ``extra``: headers that every request gets; without keys
    those of the agent's own go through as they are."""

    base_url: str
    token: str = field(repr=False, default="")
    keys: tuple[tuple[str, str], ...] = field(repr=False, default=())
    extra: tuple[tuple[str, str], ...] = field(repr=False, default=())

    @property
    def secure(self) -> bool:
        """Whether it is reached by TLS."""
        return urlsplit(self.base_url).scheme == "https"

    @property
    def place(self) -> HostPort | None:
        """Where it is; None if its URL is none."""
        parts = urlsplit(self.base_url)
        return place(parts.netloc.rpartition("@")[2], 443 if self.secure else 80)

    @property
    def path(self) -> str:
        """What each request's path begins with, without a final slash."""
        return urlsplit(self.base_url).path.rstrip("/")

    def has(self, target: str) -> bool:
        """Whether a request's path lies within the service; two readers must not see two places."""
        path = target.partition("?")[0]
        # Some servers take what follows a semicolon for a parameter of the step: "..;x" is "..".
        steps = [unquote(step).partition(";")[0] for step in re.split(r"[/\\]", unquote(path))]
        return path.startswith(f"{self.path}/") and not {".", ".."} & set(steps)

    def inside(self, port: int) -> str:
        """Its base URL for the agent, where the proxy is on ``port`` of the loopback."""
        return f"http://127.0.0.1:{port}{self.path}"

    def onward(self, head: RequestHead) -> RequestHead:
        """The request as it goes to the service. Raises WrongKeyError."""
        assert self.place is not None
        host = urlsplit(self.base_url).netloc.rpartition("@")[2]
        names = tuple(name.lower() for name, _ in self.extra)
        sent = head.onward(head.target, host).without(*names, *(DROPPED if self.mask else ()))
        if not self.keys:
            return RequestHead(sent.method, sent.target, (*sent.headers, *self.extra))
        real = dict(self.keys)
        headers = []
        for name, value in sent.headers:
            # Gateways take X_Api_Key for X-Api-Key.
            known = name.lower().replace("_", "-")
            if known in KEY_HEADERS:
                given = value.removeprefix(BEARER) if known == "authorization" else value
                if known not in real or not hmac.compare_digest(given.encode(), self.token.encode()):
                    raise WrongKeyError
                headers.append((known, real[known]))
            else:
                headers.append((name, value))
        return RequestHead(sent.method, sent.target, (*headers, *self.extra))

    @property
    def mask(self) -> Mask | None:
        """What its answers pass before an agent sees them: a service may repeat what it was asked."""
        values = (value.removeprefix(BEARER).encode() for _, value in (*self.keys, *self.extra))
        secrets = tuple(value for value in values if len(value) >= SECRET_BYTES)
        return Concealer(secrets) if secrets else None


class Concealer:
    """Puts as many x in the place of each of ``secrets``, also where one comes in pieces. Holds nothing back but
    what may be the beginning of one."""

    def __init__(self, secrets: tuple[bytes, ...]) -> None:
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._held = b""

    def __call__(self, piece: bytes) -> bytes:
        """What may go on; with b"" all that is left."""
        data = self._pattern.sub(lambda found: b"x" * len(found[0]), self._held + piece)
        begun = 0 if not piece else self._begun(data)
        self._held = data[len(data) - begun :]
        return data[: len(data) - begun]

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end begin a secret."""
        longest = min(len(self._secrets[0]) - 1, len(data))
        ends = (length for length in range(longest, 0, -1) if self._begins(data[-length:]))
        return next(ends, 0)

    def _begins(self, end: bytes) -> bool:
        return any(secret.startswith(end) for secret in self._secrets)


def parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """``Name: value`` lines, as ANTHROPIC_CUSTOM_HEADERS has them."""
    pairs = (line.partition(":") for line in text.splitlines())
    return tuple((name.strip(), value.strip()) for name, colon, value in pairs if colon and name.strip())
