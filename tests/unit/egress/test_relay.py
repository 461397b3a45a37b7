"""Bodies: what two readers could read differently does not pass."""

from __future__ import annotations

import asyncio

import pytest

from codebutler_worker.egress.http import MalformedHttpError, pass_body


class Sink:
    """As much of a StreamWriter as a body needs."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    async def drain(self) -> None:
        return


async def passed(sent: bytes, length: int | None = None) -> bytes:
    source, sink = asyncio.StreamReader(limit=2**16), Sink()
    source.feed_data(sent)
    source.feed_eof()
    await pass_body(source, sink, length)  # type: ignore[arg-type]  # what a body needs of one
    return sink.written


@pytest.mark.parametrize(
    ("sent", "onward"),
    [
        (b"0\r\n\r\n", b"0\r\n\r\n"),
        (b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
        (b"A \t\r\n0123456789\r\n000\r\n\r\n", b"a\r\n0123456789\r\n0\r\n\r\n"),
        (b"1;name=value\r\nx\r\n0;a\r\nSum: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n", b"1\r\nx\r\n0\r\n\r\n"),
    ],
)
async def test_chunks_are_written_as_everybody_reads_them(sent: bytes, onward: bytes) -> None:
    assert await passed(sent) == onward


@pytest.mark.parametrize(
    "sent",
    [
        b"0x1f\r\nGET / HTTP/1.1\r\nX: 0123456789ab\r\n0\r\n\r\n",
        b"1_0\r\n0123456789abcdef\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"-1\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"\r\n5\r\nhello\r\n0\r\n\r\n",
        b"5;\nx\r\nhello\r\n0\r\n\r\n",
        b"5;\rx\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"ffffffffffffffffffff\r\n",
        b"0\r\nX: 1\n\nGET / HTTP/1.1\r\n\r\n",
        b"0\r\nno trailer\r\n\r\n",
        b"0\r\n" + b"X: 1\r\n" * 20_000 + b"\r\n",
        "٥\r\nhello\r\n0\r\n\r\n".encode(),
    ],
)
async def test_what_can_be_read_in_two_ways_is_refused(sent: bytes) -> None:
    with pytest.raises(MalformedHttpError):
        await passed(sent)


async def test_a_body_of_a_known_length_is_no_longer_than_that() -> None:
    assert await passed(b"hello, GET / HTTP/1.1\r\n\r\n", 5) == b"hello"
    with pytest.raises(EOFError):
        await passed(b"hell", 5)
