"""The heads of HTTP/1.1 messages, read strictly (RFC 9112) and written. Pure.

Whoever sends them may be hostile: what two readers could read differently is refused, not mended.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

MAX_HEAD_BYTES = 64 * 2**10
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"[\x21-\x7e]+")
_STATUS = re.compile(r"HTTP/1\.[01] ([1-9][0-9]{2})(?: .*)?")
# RFC 9110, 7.6.1: these are about one connection; and what tells a proxy who its client is.
_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
        "te",
        "upgrade",
    }
)

Headers = tuple[tuple[str, str], ...]


class MalformedError(Exception):
    """This is no HTTP message; one line that says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request."""

    method: str
    target: str
    headers: Headers

    def values(self, name: str) -> list[str]:
        """All headers of that name (lower case)."""
        return [value for key, value in self.headers if key.lower() == name]

    def without(self, *names: str) -> Head:
        """The same without the headers of these names (lower case)."""
        return replace(self, headers=tuple(pair for pair in self.headers if pair[0].lower() not in names))

    def onward(self, target: str, host: str) -> Head:
        """As it goes to the server itself, for one request on a connection of its own."""
        kept = tuple(pair for pair in self.headers if pair[0].lower() not in {*_HOP, "host"})
        return Head(self.method, target, (("Host", host), *kept, ("Connection", "close")))

    def encode(self) -> bytes:
        """The bytes to send, up to the empty line that ends a head."""
        lines = (f"{self.method} {self.target} HTTP/1.1", *(f"{key}: {value}" for key, value in self.headers))
        return "\r\n".join((*lines, "", "")).encode("latin-1")

    @property
    def body(self) -> int | None:
        """The length of the body in bytes, None for a chunked one. Raises MalformedError."""
        lengths, codings = self.values("content-length"), self.values("transfer-encoding")
        if not codings:
            if len(lengths) > 1 or not all(re.fullmatch(r"[0-9]{1,18}", length) for length in lengths):
                raise MalformedError("its length is not clear")
            return int(lengths[0]) if lengths else 0
        if lengths or [coding.lower() for coding in codings] != ["chunked"]:
            raise MalformedError("its length is not clear")
        return None


def parse(data: bytes) -> Head:
    """A request's head, with the empty line that ends it. Raises MalformedError."""
    first, headers = _lines(data)
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise MalformedError("it is no HTTP/1.1 request")
    method, target, _ = parts
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise MalformedError("its first line is not well formed")
    return Head(method, target, headers)


def closing(data: bytes) -> tuple[int, bytes]:
    """(status, the same head of an answer, saying that the connection ends with it). Raises MalformedError."""
    first, headers = _lines(data)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise MalformedError("the service did not answer in HTTP")
    status = int(found[1])
    kept = [f"{key}: {value}" for key, value in headers if key.lower() not in _HOP]
    # An interim answer (1xx) is followed by the real one.
    ending = [] if status < 200 else ["Connection: close"]
    return status, "\r\n".join((first, *kept, *ending, "", "")).encode("latin-1")


def _lines(data: bytes) -> tuple[str, Headers]:
    text = data.decode("latin-1").removesuffix("\r\n\r\n")
    first, *rest = text.split("\r\n")
    headers = []
    for line in rest:
        name, colon, value = line.partition(":")
        value = value.strip(" \t")
        if not colon or not _TOKEN.fullmatch(name) or any(ord(sign) < 32 and sign != "\t" for sign in value):
            raise MalformedError("a header is not well formed")
        headers.append((name, value))
    if any(ord(sign) < 32 for sign in first):
        raise MalformedError("its first line is not well formed")
    return first, tuple(headers)


def refusal(status: int, reason: str, text: str) -> bytes:
    """An answer of ours: ``reason`` is what some programs show, ``text`` what others do."""
    body = f"{text}\n".encode()
    lines = (
        f"HTTP/1.1 {status} {reason}", "Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}",
        "Connection: close", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode("latin-1", "replace") + body
