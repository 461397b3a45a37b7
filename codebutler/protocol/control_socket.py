"""The control socket: how `codebutler status`, `stop`, `send` and `chat` talk to the running supervisor.

Only the owner can open the socket (0600 in a 0700 directory), and we also check the peer's user ID.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from codebutler.domain.errors import CodeButlerError, NotRunningError, ProtocolError
from codebutler.platform.system import this_system
from codebutler.protocol.control import ChatInput, ChatRequest, ControlReply, ControlRequest, Failed

LINE_LIMIT_BYTES = 4 * 2**20


Answer = Callable[[ControlRequest], AsyncIterator[ControlReply]]
"""Yields the replies to one request as they come."""
Converse = Callable[[ChatRequest, AsyncIterator[ChatInput]], AsyncIterator[ControlReply]]
"""The same for a chat, until the inputs end because the other side has gone."""


@asynccontextmanager
async def control_server(path: Path, answer: Answer, converse: Converse) -> AsyncIterator[None]:
    """Serve requests and chats on ``path`` while the context is open. A stale socket file is replaced."""
    path.unlink(missing_ok=True)
    mask = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(
            _Connection(answer, converse).serve, path, limit=LINE_LIMIT_BYTES
        )
    finally:
        os.umask(mask)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


class _Connection:
    """Serves one request per connection."""

    def __init__(self, answer: Answer, converse: Converse) -> None:
        self._answer = answer
        self._converse = converse
        self._decoder = msgspec.json.Decoder(ControlRequest)
        self._inputs: msgspec.json.Decoder[ChatInput] = msgspec.json.Decoder(ChatInput)
        self._encoder = msgspec.json.Encoder()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not _is_owner(writer.get_extra_info("socket")):
                return
            async for reply in self._replies(reader):
                writer.write(self._encoder.encode(reply) + b"\n")
                await writer.drain()
        except ConnectionError:
            return
        finally:
            writer.close()

    async def _replies(self, reader: asyncio.StreamReader) -> AsyncIterator[ControlReply]:
        try:
            request = self._decoder.decode(await reader.readline())
        except (msgspec.DecodeError, ValueError) as error:
            yield Failed(text=f"unreadable request: {error}")
            return
        if isinstance(request, ChatRequest):
            replies = self._converse(request, self._inputs_from(reader))
        else:
            replies = self._answer(request)
        try:
            async for reply in replies:
                yield reply
        except CodeButlerError as error:
            yield Failed(text=str(error))

    async def _inputs_from(self, reader: asyncio.StreamReader) -> AsyncIterator[ChatInput]:
        try:
            while line := await reader.readline():
                yield self._inputs.decode(line)
        except (msgspec.DecodeError, ValueError) as error:
            raise ProtocolError(f"unreadable input: {error}") from error


async def ask(path: Path, request: ControlRequest) -> AsyncGenerator[ControlReply, None]:
    """All replies of the running supervisor. Raises NotRunningError if there is none."""
    if len(os.fsencode(path)) > this_system().socket_path_bytes:
        raise NotRunningError  # no supervisor can be there
    try:
        reader, writer = await asyncio.open_unix_connection(path, limit=LINE_LIMIT_BYTES)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise NotRunningError from error
    decoder: msgspec.json.Decoder[ControlReply] = msgspec.json.Decoder(ControlReply)
    try:
        writer.write(msgspec.json.encode(request) + b"\n")
        await writer.drain()
        while line := await reader.readline():
            yield decoder.decode(line)
    except (msgspec.DecodeError, ConnectionError) as error:
        raise ProtocolError(f"the supervisor's answer cannot be read: {error}") from error
    finally:
        writer.close()


def _is_owner(sock: socket.socket) -> bool:
    """Whether the peer is our own user; False also if it has gone, because the system cannot say then who it was."""
    try:
        return this_system().peer_uid(sock) in (os.getuid(), 0)
    except OSError:
        return False
