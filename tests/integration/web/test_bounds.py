"""Nobody who reaches the port can use up the supervisor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from codebutler.platform.http import listen
from codebutler.platform.http_server import BoundedProtocol, serving

DEADLINE_S = 30
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Five(BoundedProtocol):
    most = 5


class Impatient(BoundedProtocol):
    idle_s = 0.05


class Slow:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.set()
        await self.may.wait()
        await PlainTextResponse("here")(scope, receive, send)


@asynccontextmanager
async def served(protocol: type[BoundedProtocol], app: Slow) -> AsyncIterator[int]:
    listener = listen("127.0.0.1", 0)
    async with asyncio.timeout(DEADLINE_S), serving(app, listener, protocol):
        yield listener.getsockname()[1]


async def connected(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True


async def answered(port: int) -> bool:
    """Whether somebody who connects now is answered."""
    reader, writer = await connected(port)
    try:
        writer.write(GET)
        return (await reader.readline()).startswith(b"HTTP/1.1 200")
    except ConnectionError:
        return False
    finally:
        writer.close()


async def test_one_connection_too_many_is_dropped_and_there_is_room_again_later() -> None:
    slow = Slow()
    slow.may.set()
    async with served(Five, slow) as port:
        held = [await connected(port) for _ in range(5)]
        reader, writer = held[-1]
        writer.write(GET)  # all five are known to the server once the last is answered
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert not await answered(port)
        for _, each in held:
            each.close()
        while not await answered(port):
            pass


@pytest.mark.parametrize("said", [b"", b"GET", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_who_asks_for_nothing_is_let_go(said: bytes) -> None:
    async with served(Impatient, Slow()) as port:
        reader, writer = await connected(port)
        writer.write(said)
        assert await ended(reader)
        writer.close()


async def test_who_waits_for_an_answer_is_not() -> None:
    slow = Slow()
    async with served(Impatient, slow) as port:
        reader, writer = await connected(port)
        writer.write(GET)
        await slow.asked.wait()
        others = [await connected(port) for _ in range(3)]
        for other, _ in others:
            assert await ended(other)  # so long it takes, at least
        slow.may.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        for _, each in [*others, (reader, writer)]:
            each.close()
