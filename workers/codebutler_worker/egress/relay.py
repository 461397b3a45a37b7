"""Bytes from one connection to another, no more of them than belong there."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable

from codebutler.platform.tasks import abort
from codebutler_worker.egress.heads import MalformedError
from codebutler_worker.egress.hosts import Streams

PIECE_BYTES = 64 * 2**10
# RFC 9112, 7.1: what int() takes besides (0x10, 1_0, +1), other readers take for something else.
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*\r\n")
MAX_TRAILER_BYTES = 64 * 2**10
Mask = Callable[[bytes], bytes]
"""Takes what came, gives what may go on; b"" asks for what it holds back."""


async def both_ways(one: Streams, other: Streams) -> None:
    """Until both have said all they had to say, or either is gone."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rest(one[0], other[1]))
        tasks.create_task(rest(other[0], one[1]))


async def rest(source: asyncio.StreamReader, sink: asyncio.StreamWriter, mask: Mask | None = None) -> None:
    """Everything up to the end, and the end; ``mask`` sees it before ``sink`` does."""
    with contextlib.suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            sink.write(piece if mask is None else mask(piece))
            await sink.drain()
        if mask is not None:
            sink.write(mask(b""))
        if sink.can_write_eof():
            sink.write_eof()
        return
    # One side is gone: so is what the other would say.
    abort(sink.transport)


async def body(source: asyncio.StreamReader, sink: asyncio.StreamWriter, length: int | None) -> None:
    """The body of one message: ``length`` bytes, or chunks (None). Raises MalformedError and EOFError.

    Chunks are written anew: sizes as everybody reads them, without extensions and trailers.
    """
    if length is not None:
        await _exactly(source, sink, length)
        return
    while size := await _chunk_size(source):
        sink.write(b"%x\r\n" % size)
        await _exactly(source, sink, size)
        if await source.readexactly(2) != b"\r\n":
            raise MalformedError("a chunk is longer than it says")
        sink.write(b"\r\n")
    read = 0
    while (line := await source.readuntil(b"\r\n")) != b"\r\n":
        read += len(line)
        if not _TRAILER.fullmatch(line) or read > MAX_TRAILER_BYTES:
            raise MalformedError("a trailer is not well formed")
    sink.write(b"0\r\n\r\n")
    await sink.drain()


async def _chunk_size(source: asyncio.StreamReader) -> int:
    found = _CHUNK.fullmatch(await source.readuntil(b"\r\n"))
    if found is None:
        raise MalformedError("a chunk's size is not well formed")
    return int(found[1], 16)


async def _exactly(source: asyncio.StreamReader, sink: asyncio.StreamWriter, length: int) -> None:
    while length:
        piece = await source.read(min(length, PIECE_BYTES))
        if not piece:
            raise EOFError
        length -= len(piece)
        sink.write(piece)
        await sink.drain()
