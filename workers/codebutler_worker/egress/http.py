"""HTTP/1.1 messages: heads parsed strictly (RFC 9112) and written, and bodies forwarded.

The sender may be hostile: anything that two parsers could read differently is refused, not repaired.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from codebutler.platform.tasks import abort

MAX_HEAD_BYTES = 64 * 2**10
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# RFC 9112, 3.2: no fragment. Some servers take it for one, others for a part of the path.
_TARGET = re.compile(r"[\x21\x22\x24-\x7e]+")
_STATUS = re.compile(r"HTTP/1\.[01] ([1-9][0-9]{2})(?: .*)?")
# RFC 9110, 7.6.1: headers about a single connection, and headers that tell a proxy who its client is.
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


class MalformedHttpError(Exception):
    """Not a valid HTTP message; the message is one line that says why."""


class RequestHead(Struct, frozen=True):
    """The head of a request."""

    method: str
    target: str
    headers: Headers

    def values(self, name: str) -> list[str]:
        """The values of all headers with that name (lower case)."""
        return [value for key, value in self.headers if key.lower() == name]

    def without(self, *names: str) -> RequestHead:
        """A copy without the headers of these names (lower case)."""
        return replace(self, headers=tuple(pair for pair in self.headers if pair[0].lower() not in names))

    def onward(self, target: str, host: str) -> RequestHead:
        """The head as sent to the origin server, for one request on its own connection."""
        kept = tuple(pair for pair in self.headers if pair[0].lower() not in {*_HOP, "host"})
        return RequestHead(self.method, target, (("Host", host), *kept, ("Connection", "close")))

    def encode(self) -> bytes:
        """The bytes to send, including the empty line that ends a head."""
        lines = (f"{self.method} {self.target} HTTP/1.1", *(f"{key}: {value}" for key, value in self.headers))
        return "\r\n".join((*lines, "", "")).encode("latin-1")

    @property
    def body(self) -> int | None:
        """The length of the body in bytes, None for a chunked one. Raises MalformedHttpError."""
        lengths, codings = self.values("content-length"), self.values("transfer-encoding")
        if not codings:
            if len(lengths) > 1 or not all(re.fullmatch(r"[0-9]{1,18}", length) for length in lengths):
                raise MalformedHttpError("its length is ambiguous")
            return int(lengths[0]) if lengths else 0
        if lengths or [coding.lower() for coding in codings] != ["chunked"]:
            raise MalformedHttpError("its length is ambiguous")
        return None


def parse(data: bytes) -> RequestHead:
    """Parse a request's head, including the empty line that ends it. Raises MalformedHttpError."""
    first, headers = _lines(data)
    parts = first.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise MalformedHttpError("it is not an HTTP/1.1 request")
    method, target, _ = parts
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise MalformedHttpError("its first line is malformed")
    return RequestHead(method, target, headers)


def closing(data: bytes) -> tuple[int, bytes]:
    """(status, the same response head with "Connection: close"). Raises MalformedHttpError."""
    first, headers = _lines(data)
    found = _STATUS.fullmatch(first)
    if found is None:
        raise MalformedHttpError("the service did not answer in HTTP")
    status = int(found[1])
    kept = [f"{key}: {value}" for key, value in headers if key.lower() not in _HOP]
    # The final response follows an interim one (1xx).
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
            raise MalformedHttpError("a header is malformed")
        headers.append((name, value))
    if any(ord(sign) < 32 for sign in first):
        raise MalformedHttpError("its first line is malformed")
    return first, tuple(headers)


def refusal(status: int, reason: str, text: str) -> bytes:
    """A response of our own: some programs show ``reason``, others ``text``."""
    body = f"{text}\n".encode()
    lines = (
        f"HTTP/1.1 {status} {reason}", "Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}",
        "Connection: close", "", "",
    )  # fmt: skip
    return "\r\n".join(lines).encode("latin-1", "replace") + body


# Forwarding bytes between connections, and no more of them than belong to a message.

PIECE_BYTES = 64 * 2**10
# RFC 9112, 7.1. int() accepts more (0x10, 1_0, +1), and other parsers read those differently.
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n")
MAX_TRAILER_BYTES = 64 * 2**10
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Mask = Callable[[bytes], bytes]
"""Takes a piece, returns what may be forwarded; b"" flushes what it holds back."""


async def both_ways(one: Streams, other: Streams) -> None:
    """Forward both ways until both sides have finished or one is gone."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(pass_rest(one[0], other[1]))
        tasks.create_task(pass_rest(other[0], one[1]))


async def pass_rest(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, mask: Mask | None = None
) -> None:
    """Forward everything up to the end, then the end itself; ``mask`` sees the data before ``sink`` does."""
    with contextlib.suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            sink.write(piece if mask is None else mask(piece))
            await sink.drain()
        if mask is not None:
            sink.write(mask(b""))
        if sink.can_write_eof():
            sink.write_eof()
        return
    # One side is gone, so nothing more can be forwarded.
    abort(sink.transport)


async def pass_body(
    source: asyncio.StreamReader,
    sink: asyncio.StreamWriter,
    length: int | None,
    count: Callable[[int], object] = int,
) -> None:
    """Forward the body of one message: ``length`` bytes, or chunks (None). Raises MalformedHttpError and EOFError.

    Chunks are rewritten, with unambiguous sizes and without extensions and trailers; ``count`` is called with the
    size of each.
    """
    if length is not None:
        await _exactly(source, sink, length)
        return
    while size := await _chunk_size(source):
        sink.write(b"%x\r\n" % size)
        count(size)
        await _exactly(source, sink, size)
        if await source.readexactly(2) != b"\r\n":
            raise MalformedHttpError("a chunk is longer than it says")
        sink.write(b"\r\n")
    read = 0
    while (line := await source.readuntil(b"\r\n")) != b"\r\n":
        read += len(line)
        if not _TRAILER.fullmatch(line) or read > MAX_TRAILER_BYTES:
            raise MalformedHttpError("a trailer is malformed")
    sink.write(b"0\r\n\r\n")
    await sink.drain()


async def _chunk_size(source: asyncio.StreamReader) -> int:
    found = _CHUNK.fullmatch(await source.readuntil(b"\r\n"))
    if found is None:
        raise MalformedHttpError("a chunk's size is malformed")
    return int(found[1], 16)


async def _exactly(source: asyncio.StreamReader, sink: asyncio.StreamWriter, length: int) -> None:
    while length:
        piece = await source.read(min(length, PIECE_BYTES))
        if not piece:
            raise EOFError
        length -= len(piece)
        sink.write(piece)
        await sink.drain()
