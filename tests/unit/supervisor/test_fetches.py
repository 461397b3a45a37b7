"""A worker's files on their way to it: in pieces, no faster than it reads, a fault for each alone."""

from __future__ import annotations

import asyncio

from codebutler.domain.errors import ChatError
from codebutler.domain.model import File, Quoted
from codebutler.protocol.messages import (
    Fetch,
    FetchFailed,
    FetchThread,
    FileChunk,
    FileTranscript,
    ThreadFetched,
)
from codebutler.supervisor.limits import Reports
from codebutler.supervisor.queues import AT_ONCE, MOST_WAITING, Fetches
from tests.clock import ManualClock, settle
from tests.workers.services import RecordingServices, repo


class Worker:
    """What it was sent; it reads only while ``reading`` is set."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.reading = asyncio.Event()
        self.reading.set()
        self.services = RecordingServices()
        self.reports = Reports("shop", self.services, ManualClock())
        self.fetches = Fetches(self.services, self.reports, self.heard.append, self.drain)

    async def drain(self) -> None:
        await self.reading.wait()

    def ask(self, request_id: str, file_id: str) -> None:
        self.fetches.start(repo(), Fetch(request_id=request_id, file_id=file_id))

    def of(self, request_id: str) -> list[object]:
        return [message for message in self.heard if getattr(message, "request_id", "") == request_id]


async def test_a_file_comes_in_pieces_and_ends() -> None:
    worker = Worker()
    worker.services.files["F1"] = (b"one", b"two")
    worker.ask("r1", "F1")
    await settle(10)
    assert worker.heard == [
        FileChunk(request_id="r1", data=b"one"),
        FileChunk(request_id="r1", data=b"two"),
        FileChunk(request_id="r1", data=b"", last=True, file=File(id="F1")),
    ]


async def test_a_transcript_comes_instead() -> None:
    worker = Worker()
    worker.services.files["F1"] = "run the tests"
    worker.ask("r1", "F1")
    await settle(10)
    assert worker.heard == [FileTranscript(request_id="r1", text="run the tests")]


async def test_a_worker_that_does_not_read_gets_no_more() -> None:
    worker = Worker()
    worker.services.files["F1"] = (b"one", b"two")
    worker.reading.clear()
    worker.ask("r1", "F1")
    await settle(10)
    assert len(worker.heard) == 1
    worker.reading.set()
    await settle(10)
    assert len(worker.heard) == 3


async def test_only_a_few_at_once_and_not_too_many_waiting() -> None:
    worker = Worker()
    worker.services.files["F1"] = (b"piece",)
    worker.reading.clear()
    for number in range(MOST_WAITING + 1):
        worker.ask(f"r{number}", "F1")
    await settle(10)
    assert worker.of(f"r{MOST_WAITING}") == [FetchFailed(request_id=f"r{MOST_WAITING}", code="too_many")]
    assert len(worker.heard) == AT_ONCE + 1
    await worker.fetches.close()
    assert len(worker.heard) == AT_ONCE + 1


async def test_a_refusal_has_slacks_word_and_the_next_file_comes() -> None:
    worker = Worker()
    worker.services.files["F1"] = ChatError(code="login_page")
    worker.services.files["F2"] = ()
    worker.ask("r1", "F1")
    worker.ask("r2", "F2")
    await settle(10)
    assert worker.of("r1") == [FetchFailed(request_id="r1", code="login_page")]
    assert worker.of("r2") == [FileChunk(request_id="r2", data=b"", last=True, file=File(id="F2"))]
    assert "login_page" in worker.services.log_text("shop")


async def test_a_fault_of_ours_is_told_without_its_details() -> None:
    worker = Worker()

    async def broken() -> None:
        raise OSError("xoxb-secret")

    worker.services.files["F1"] = (b"x",)
    worker.fetches = Fetches(worker.services, worker.reports, worker.heard.append, broken)
    worker.ask("r1", "F1")
    await settle(10)
    assert worker.of("r1")[-1] == FetchFailed(request_id="r1", code="internal_error")
    assert "xoxb" not in worker.services.log_text("shop")


async def test_a_thread_is_told_or_why_not() -> None:
    worker = Worker()
    said = (Quoted(ref="1.0", user="U1", text="a"), Quoted(ref="3.0", user="U1", text="b"))
    worker.services.threads |= {"1.0": said, "2.0": RuntimeError("surprise")}
    for number, thread_ts in enumerate(("1.0", "2.0", "9.9")):
        message = FetchThread(request_id=f"r{number}", thread=thread_ts, before="2.0")
        worker.fetches.start(repo(), message)
    await settle(20)
    assert worker.of("r0") == [ThreadFetched(request_id="r0", said=said[:1])]
    assert worker.of("r1") == [ThreadFetched(request_id="r1", code="internal_error")]
    assert worker.of("r2") == [ThreadFetched(request_id="r2", code="thread_not_found")]


async def test_too_many_threads_at_once_are_refused() -> None:
    worker = Worker()
    for number in range(MOST_WAITING + 1):
        message = FetchThread(request_id=f"r{number}", thread="1.0", before="2.0")
        worker.fetches.start(repo(), message)
    assert worker.heard == [ThreadFetched(request_id=f"r{MOST_WAITING}", code="too_many")]
    await worker.fetches.close()
