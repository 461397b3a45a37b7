"""Bytes from one connection to another, no more of them than belong there."""

from __future__ import annotations

import asyncio
import contextlib

from codebutler_worker.egress.dial import Streams
from codebutler_worker.egress.heads import MalformedError

PIECE_BYTES = 64 * 2**10


async def both_ways(one: Streams, other: Streams) -> None:
    """Until both have said all they had to say, or either is gone."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rest(one[0], other[1]))
        tasks.create_task(rest(other[0], one[1]))


async def rest(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Everything up to the end, and the end."""
    with contextlib.suppress(OSError):
        while piece := await source.read(PIECE_BYTES):
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()
        return
    # One side is gone: so is what the other would say.
    sink.transport.abort()


async def body(source: asyncio.StreamReader, sink: asyncio.StreamWriter, length: int | None) -> None:
    """The body of one message: ``length`` bytes, or chunks (None). Raises MalformedError and EOFError."""
    if length is not None:
        await _exactly(source, sink, length)
        return
    while True:
        line = await source.readuntil(b"\r\n")
        sink.write(line)
        try:
            size = int(line.partition(b";")[0].strip() if line[:1].isalnum() else b"", 16)
        except ValueError:
            raise MalformedError("a chunk's size is not well formed") from None
        if size == 0:
            break
        await _exactly(source, sink, size + 2)
    while line != b"\r\n":
        line = await source.readuntil(b"\r\n")
        sink.write(line)
    await sink.drain()


async def _exactly(source: asyncio.StreamReader, sink: asyncio.StreamWriter, length: int) -> None:
    while length:
        piece = await source.read(min(length, PIECE_BYTES))
        if not piece:
            raise EOFError
        length -= len(piece)
        sink.write(piece)
        await sink.drain()
