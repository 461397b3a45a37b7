"""A file that is asked for comes together, fails, or takes too long."""

from __future__ import annotations

import asyncio

import pytest

from codebutler.clock import ManualClock, settle
from codebutler.protocol.messages import MAX_FETCH_BYTES, Fetch, FetchFailed, FileChunk, FileTranscript
from codebutler_worker.media.fetcher import FETCH_S, Fetched, Fetcher, NotFetchedError


class Line:
    """What was asked, and the fetcher that asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.clock = ManualClock()
        self.fetcher = Fetcher(self.asked.append, self.clock)

    async def ask(self, file_id: str = "F1") -> asyncio.Task[Fetched]:
        task = asyncio.create_task(self.fetcher.fetch(file_id))
        await settle(5)
        return task


async def test_pieces_become_the_file() -> None:
    line = Line()
    task = await line.ask()
    assert line.asked == [Fetch(file_id="F1")]
    line.fetcher.take(FileChunk(file_id="F2", data=b"of another"))
    line.fetcher.take(FileChunk(file_id="F1", data=b"one "))
    line.fetcher.take(FileChunk(file_id="F1", data=b"two", last=True))
    assert await task == Fetched(b"one two")


async def test_a_transcript_comes_instead() -> None:
    line = Line()
    task = await line.ask()
    line.fetcher.take(FileTranscript(file_id="F1", text="hello"))
    assert await task == Fetched(transcript="hello")


async def test_two_who_ask_get_the_same_and_one_may_leave() -> None:
    line = Line()
    leaving, staying = await line.ask(), await line.ask()
    assert len(line.asked) == 1
    leaving.cancel()
    await settle(5)
    line.fetcher.take(FileChunk(file_id="F1", data=b"x", last=True))
    assert await staying == Fetched(b"x")


async def test_a_failure_has_its_code_and_the_next_try_is_new() -> None:
    line = Line()
    task = await line.ask()
    line.fetcher.take(FileChunk(file_id="F1", data=b"half"))
    line.fetcher.take(FetchFailed(file_id="F1", code="login_page"))
    with pytest.raises(NotFetchedError, match="login_page"):
        await task
    again = await line.ask()
    line.fetcher.take(FileChunk(file_id="F1", data=b"whole", last=True))
    assert await again == Fetched(b"whole")


async def test_it_does_not_wait_for_ever() -> None:
    line = Line()
    task = await line.ask()
    await line.clock.advance(FETCH_S + 1)
    with pytest.raises(NotFetchedError, match="timeout"):
        await task
    line.fetcher.take(FileChunk(file_id="F1", data=b"late", last=True))


async def test_more_than_was_agreed_is_refused() -> None:
    line = Line()
    task = await line.ask()
    for _ in range(3):
        line.fetcher.take(FileChunk(file_id="F1", data=b"x" * (MAX_FETCH_BYTES // 2)))
    with pytest.raises(NotFetchedError, match="too_large"):
        await task
