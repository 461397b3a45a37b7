"""What a worker prints, line by line and bounded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

CHUNK_BYTES = 2**14
LINE_BYTES = 2**13


class Output:
    """The reading end of a pipe that a worker has as its stdout and stderr."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self._reader = reader
        self._transport = transport

    @classmethod
    async def over(cls, fd: int) -> Output:
        """Take over ``fd``."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=CHUNK_BYTES)
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
        )
        return cls(reader, transport)

    async def lines(self) -> AsyncIterator[str]:
        """Every line that is not blank, until end of file; one that is too long comes in pieces."""
        rest = b""
        while chunk := await self._reader.read(CHUNK_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > LINE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                if text := line.decode(errors="replace").rstrip():
                    yield text
        if text := rest.decode(errors="replace").rstrip():
            yield text

    def close(self) -> None:
        """Listen no longer."""
        self._transport.close()
