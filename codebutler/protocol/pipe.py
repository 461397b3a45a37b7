"""One end of the pipe between the parent and a worker, on asyncio streams."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeVar

import msgspec

from codebutler.domain.errors import FrameTooLargeError, ProtocolError
from codebutler.protocol.messages import MAX_DELIVERED_BYTES, MAX_FRAME_BYTES, ToParent, ToWorker

HEADER = struct.Struct(">I")
M = TypeVar("M")


class Codec(Generic[M]):
    """Encodes any message; decodes only those of the union ``kind``."""

    def __init__(
        self, kind: object, max_frame_bytes: int = MAX_FRAME_BYTES, max_sent_bytes: int = MAX_FRAME_BYTES
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._max_sent_bytes = max_sent_bytes
        self._encoder = msgspec.json.Encoder()
        self._decoder: msgspec.json.Decoder[M] = msgspec.json.Decoder(kind)

    def encode(self, message: object) -> bytes:
        """One whole frame. Raises FrameTooLargeError before anything is written."""
        body = self._encoder.encode(message)
        if len(body) > self._max_sent_bytes:
            raise _too_large(len(body), self._max_sent_bytes)
        return HEADER.pack(len(body)) + body

    def decode(self, body: bytes) -> M:
        """The message in a frame's body. Raises ProtocolError for anything that is not one of the union."""
        try:
            return self._decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ProtocolError(f"unreadable message on the pipe: {error}") from error

    def check_length(self, length: int) -> None:
        """Raise FrameTooLargeError if a body of ``length`` bytes may not travel."""
        if length > self.max_frame_bytes:
            raise _too_large(length, self.max_frame_bytes)


def _too_large(length: int, limit: int) -> FrameTooLargeError:
    return FrameTooLargeError(f"a frame of {length} bytes exceeds the limit of {limit}")


def to_worker_codec() -> Codec[ToWorker]:
    """The codec for the messages that a worker reads."""
    return Codec(ToWorker, max_frame_bytes=MAX_DELIVERED_BYTES)


def to_parent_codec() -> Codec[ToParent]:
    """The codec for the messages that the parent reads."""
    return Codec(ToParent, max_sent_bytes=MAX_DELIVERED_BYTES)


class MessagePipe(Generic[M]):
    """Sends any message, receives messages of one union. End of file ends ``messages`` quietly."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, codec: Codec[M]) -> None:
        self._reader = reader
        self._writer = writer
        self._codec = codec

    @classmethod
    async def over(cls, sock: socket.socket, codec: Codec[M]) -> MessagePipe[M]:
        """Take over a connected socket."""
        sock.settimeout(0)
        reader, writer = await asyncio.open_connection(sock=sock, limit=2**16)
        return cls(reader, writer, codec)

    def send(self, message: object) -> None:
        """Queue one message. A closed pipe swallows it: the reader of this end learns of the death."""
        if not self._writer.is_closing():
            self._writer.write(self._codec.encode(message))

    async def drain(self) -> None:
        """Wait until the other side has read enough to queue more."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    @property
    def unread_bytes(self) -> int:
        """How many bytes the other side has not read yet."""
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
