"""The pipe: order, limits, and what a broken or dead other side looks like."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from codebutler.domain.errors import FrameTooLargeError, ProtocolError
from codebutler.protocol.messages import Heartbeat, Log, Ready, Stored, ToParent
from codebutler.protocol.pipe import HEADER, Codec, MessagePipe, to_parent_codec


@pytest.fixture
async def ends() -> AsyncIterator[tuple[MessagePipe[ToParent], socket.socket]]:
    """The parent's end, and the worker's end as a bare socket."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(5)
    channel = await MessagePipe.over(ours, to_parent_codec())
    yield channel, theirs
    channel.close()
    await channel.wait_closed()
    theirs.close()


async def heard(channel: MessagePipe[ToParent]) -> list[ToParent]:
    async with asyncio.timeout(5):
        return [message async for message in channel.messages()]


async def test_messages_come_in_order_however_they_are_cut(
    ends: tuple[MessagePipe[ToParent], socket.socket],
) -> None:
    channel, theirs = ends
    codec = to_parent_codec()
    said = [Ready(), Stored(seq=1), Log(tag="INF", text="x" * 5000), Heartbeat()]
    data = b"".join(codec.encode(message) for message in said)
    reading = asyncio.create_task(heard(channel))
    for start in range(0, len(data), 777):
        theirs.sendall(data[start : start + 777])
        await asyncio.sleep(0)
    theirs.close()
    assert await reading == said


async def test_an_end_of_file_within_a_frame_ends_quietly(
    ends: tuple[MessagePipe[ToParent], socket.socket],
) -> None:
    channel, theirs = ends
    theirs.sendall(to_parent_codec().encode(Ready()) + HEADER.pack(100) + b"half")
    theirs.close()
    assert await heard(channel) == [Ready()]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (HEADER.pack(2 * 2**20 + 1), FrameTooLargeError),
        (HEADER.pack(2**32 - 1), FrameTooLargeError),
        (HEADER.pack(7) + b"garbage", ProtocolError),
        (HEADER.pack(0), ProtocolError),
    ],
)
async def test_a_bad_frame_is_a_typed_error_and_closes_the_pipe(
    ends: tuple[MessagePipe[ToParent], socket.socket], data: bytes, error: type[ProtocolError]
) -> None:
    channel, theirs = ends
    theirs.sendall(data)
    with pytest.raises(error):
        await heard(channel)
    await channel.wait_closed()
    assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_sending_into_a_dead_pipe_is_swallowed_until_the_reader_notices(
    ends: tuple[MessagePipe[ToParent], socket.socket],
) -> None:
    channel, theirs = ends
    theirs.close()
    for _ in range(100):
        channel.send(Log(tag="INF", text="x" * 10_000))
        await channel.drain()
    assert await heard(channel) == []


async def test_what_is_too_large_to_send_is_refused_before_a_byte_leaves() -> None:
    codec: Codec[ToParent] = Codec(ToParent, max_sent_bytes=100)
    with pytest.raises(FrameTooLargeError):
        codec.encode(Log(tag="INF", text="x" * 100))


async def test_drain_waits_for_a_worker_that_does_not_read(
    ends: tuple[MessagePipe[ToParent], socket.socket],
) -> None:
    channel, theirs = ends
    channel.send(Log(tag="INF", text="x" * 2_000_000))
    draining = asyncio.create_task(channel.drain())
    await asyncio.sleep(0)
    assert not draining.done()

    def read_all() -> int:
        count = 0
        while count < 2_000_000:
            count += len(theirs.recv(2**16))
        return count

    await asyncio.to_thread(read_all)
    async with asyncio.timeout(5):
        await draining
