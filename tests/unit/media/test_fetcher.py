"""A file that is asked for comes together, fails, or takes too long."""

from __future__ import annotations

import asyncio

import pytest

from codebutler.protocol.messages import MAX_FETCH_BYTES, Fetch, FetchFailed, FileChunk, FileTranscript
from codebutler_worker.media.files import FETCH_S, FetchedFile, Fetcher, NotFetchedError
from tests.clock import ManualClock, settle


class Line:
    """What was asked, and the fetcher that asked."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.clock = ManualClock()
        self.fetcher = Fetcher(self.asked.append, self.clock)

    async def ask(self) -> tuple[str, asyncio.Task[FetchedFile]]:
        """Returns the request's id and the fetch."""
        task = asyncio.create_task(self.fetcher.fetch("F1"))
        await settle(5)
        request = self.asked[-1]
        assert isinstance(request, Fetch)
        assert request.file_id == "F1"
        return request.request_id, task


async def test_pieces_become_the_file() -> None:
    line = Line()
    request_id, task = await line.ask()
    line.fetcher.on_message(FileChunk(request_id="another", data=b"of another"))
    line.fetcher.on_message(FileChunk(request_id=request_id, data=b"one "))
    line.fetcher.on_message(FileChunk(request_id=request_id, data=b"two", last=True))
    assert await task == FetchedFile(b"one two")


async def test_a_transcript_comes_instead() -> None:
    line = Line()
    request_id, task = await line.ask()
    line.fetcher.on_message(FileTranscript(request_id=request_id, text="hello"))
    assert await task == FetchedFile(transcript="hello")


async def test_what_comes_of_a_request_that_was_given_up_gets_into_no_other_file() -> None:
    line = Line()
    old, leaving = await line.ask()
    line.fetcher.on_message(FileChunk(request_id=old, data=b"head"))
    leaving.cancel()
    new, staying = await line.ask()
    line.fetcher.on_message(FileChunk(request_id=old, data=b"tail", last=True))
    line.fetcher.on_message(FileChunk(request_id=new, data=b"whole", last=True))
    assert await staying == FetchedFile(b"whole")
    await asyncio.gather(leaving, return_exceptions=True)
    assert leaving.cancelled()


async def test_a_failure_has_its_code() -> None:
    line = Line()
    request_id, task = await line.ask()
    line.fetcher.on_message(FileChunk(request_id=request_id, data=b"half"))
    line.fetcher.on_message(FetchFailed(request_id=request_id, code="login_page"))
    with pytest.raises(NotFetchedError, match="login_page"):
        await task


async def test_it_does_not_wait_for_ever() -> None:
    line = Line()
    request_id, task = await line.ask()
    await line.clock.advance(FETCH_S + 1)
    with pytest.raises(NotFetchedError, match="timeout"):
        await task
    line.fetcher.on_message(FileChunk(request_id=request_id, data=b"late", last=True))


async def test_more_than_was_agreed_is_refused() -> None:
    line = Line()
    request_id, task = await line.ask()
    for _ in range(3):
        line.fetcher.on_message(FileChunk(request_id=request_id, data=b"x" * (MAX_FETCH_BYTES // 2)))
    with pytest.raises(NotFetchedError, match="too_large"):
        await task
