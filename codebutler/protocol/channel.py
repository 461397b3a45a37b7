"""One end of the pipe between the parent and a worker, on asyncio streams."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

from codebutler.domain.errors import ProtocolError
from codebutler.protocol.codec import HEADER, Codec

M = TypeVar("M")


class Channel(Generic[M]):
    """Sends any message, receives messages of one union. End of file ends ``messages`` quietly."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codec: Codec[M]) -> None:
        self._reader = reader
        self._writer = writer
        self._codec = codec

    @classmethod
    async def over(cls, sock: socket.socket, codec: Codec[M]) -> Channel[M]:
        """Take over a connected socket."""
        sock.settimeout(0)
        reader, writer = await asyncio.open_connection(sock=sock, limit=2**16)
        return cls(reader, writer, codec)

    def send(self, message: object) -> None:
        """Queue one message. A closed pipe swallows it: the reader of this end learns of the death."""
        if not self._writer.is_closing():
            self._writer.write(self._codec.encode(message))

    async def drain(self) -> None:
        """Wait until the other side has taken enough that more may be queued."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    @property
    def unread_bytes(self) -> int:
        """How much the other side has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    async def messages(self, admit: Callable[[int], Awaitable[None]] | None = None) -> AsyncIterator[M]:
        """Every message until end of file. ``admit`` is awaited with the size of each before it is read.

        Raises ProtocolError, after closing the pipe, for a bad frame.
        """
        while (body := await self._frame(admit)) is not None:
            try:
                message = self._codec.decode(body)
            except ProtocolError:
                self.close()
                raise
            yield message

    async def _frame(self, admit: Callable[[int], Awaitable[None]] | None) -> bytes | None:
        try:
            (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            self._codec.check_length(length)
            if admit is not None:
                await admit(length)
            return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except ProtocolError:
            self.close()
            raise

    def close(self) -> None:
        """Close this end; the other side reads end of file."""
        self._writer.close()

    async def wait_closed(self) -> None:
        """Wait until the pipe is gone."""
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return
