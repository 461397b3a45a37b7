"""Workers and Services: what the parent and its repositories rely on, over pipes and over NATS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.domain.errors import ChatError, RegistryError
from codebutler.domain.message import said
from codebutler.domain.model import File, Post, Quoted, Upload
from codebutler.protocol.conversations import (
    AskDiff,
    AskFound,
    AskThread,
    FoundTold,
    Question,
    RunChanges,
    ThreadTold,
    Told,
)
from codebutler.protocol.messages import (
    Doing,
    Fetch,
    FetchFailed,
    FetchThread,
    FileChunk,
    FileTranscript,
    LookAtPulls,
    Send,
    SendFailed,
    Sent,
    Shutdown,
    ThreadFetched,
    TurnEnded,
    UploadPiece,
)
from tests.seam import Seam, over_nats, over_pipes, remote, until
from tests.workers.services import entry, repo

PIECE = b"x" * 2**19


@pytest.fixture(params=[over_pipes, over_nats])
async def seam(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Seam]:
    async with request.param(tmp_path) as made:
        yield made


async def test_events_come_in_order_and_each_is_settled(seam: Seam) -> None:
    for seq in range(1, 21):
        seam.workers.deliver(entry(seq, f"message {seq}"))
    seam.workers.deliver(entry(3, "message 3"))
    disk = seam.spawner.disk()
    await until(lambda: len(disk.texts) == 20)
    assert disk.texts == [f"message {seq}" for seq in range(1, 21)]
    await until(lambda: sorted(seam.services.settled) == list(range(1, 21)))


async def test_an_event_of_an_unknown_channel_is_nobodys(seam: Seam) -> None:
    seam.workers.deliver(entry(1, "lost", channel="C99"))
    seam.workers.deliver(entry(2, "found"))
    disk = seam.spawner.disk()
    await until(lambda: disk.texts)
    assert disk.texts == ["found"]
    assert 1 not in seam.services.settled


async def test_what_a_worker_has_not_stored_goes_to_the_next_one_in_order(seam: Seam) -> None:
    disk = seam.spawner.disk()
    disk.is_full = True
    for seq in (1, 2, 3):
        seam.workers.deliver(entry(seq, f"message {seq}"))
    await until(lambda: disk.deliveries)
    disk.is_full = False
    (await seam.spawner.worker()).die(1)
    await until(lambda: len(disk.texts) == 3)
    assert disk.texts == ["message 1", "message 2", "message 3"]


async def test_an_operation_is_done_once_and_answered(seam: Seam) -> None:
    worker = await seam.spawner.worker()
    worker.say(Send(op_id="op1", operation=Post(message=said("hello")), unsure=True))
    await until(lambda: Sent(op_id="op1", ref="posted-op1") in worker.heard)
    assert seam.services.sent == [("shop", "op1", Post(message=said("hello")), True)]


async def test_a_refusal_is_told_with_the_chats_word(seam: Seam) -> None:
    seam.services.answers["op1"] = [ChatError("no", "is_archived")]
    worker = await seam.spawner.worker()
    worker.say(Send(op_id="op1", operation=Post(message=said("hello"))))
    await until(lambda: SendFailed(op_id="op1", code="is_archived") in worker.heard)


async def test_operations_do_not_wait_for_each_other_and_begin_in_order(seam: Seam) -> None:
    seam.services.hold.clear()
    worker = await seam.spawner.worker()
    names = [f"op{number}" for number in range(30)]
    for name in names:
        worker.say(Send(op_id=name, operation=Post(message=said(name))))
    await until(lambda: len(seam.services.sent) == 30)
    assert [op_id for _, op_id, _, _ in seam.services.sent] == names
    seam.services.hold.set()
    await until(lambda: sum(isinstance(message, Sent) for message in worker.heard) == 30)


async def test_a_large_file_goes_out_whole(seam: Seam) -> None:
    worker = await seam.spawner.worker()
    for _ in range(10):
        worker.say(UploadPiece(op_id="op1", data=PIECE))
    worker.say(Send(op_id="op1", operation=Upload(filename="big.bin", content=b"")))
    await until(lambda: Sent(op_id="op1", ref="posted-op1") in worker.heard)
    operation = seam.services.sent[0][2]
    assert isinstance(operation, Upload)
    assert operation.content == PIECE * 10


async def test_a_file_comes_in_whole_and_in_order(seam: Seam) -> None:
    pieces = tuple(bytes([number]) * 1000 for number in range(20))
    seam.services.files["F1"] = pieces
    worker = await seam.spawner.worker()
    worker.say(Fetch(request_id="r1", file_id="F1"))
    await until(lambda: FileChunk(request_id="r1", data=b"", last=True, file=File(id="F1")) in worker.heard)
    chunks = [message for message in worker.heard if isinstance(message, FileChunk)]
    assert b"".join(chunk.data for chunk in chunks) == b"".join(pieces)


async def test_a_transcript_and_a_refusal_come_instead_of_a_file(seam: Seam) -> None:
    seam.services.files["F1"] = "run the tests"
    worker = await seam.spawner.worker()
    worker.say(Fetch(request_id="r1", file_id="F1"), Fetch(request_id="r2", file_id="F2"))
    await until(lambda: FileTranscript(request_id="r1", text="run the tests") in worker.heard)
    await until(lambda: FetchFailed(request_id="r2", code="file_not_found") in worker.heard)


async def test_a_thread_is_read(seam: Seam) -> None:
    words = (Quoted(user="U1", text="earlier", ref="1.1"), Quoted(user="U1", text="later", ref="9.9"))
    seam.services.threads["1.0"] = words
    worker = await seam.spawner.worker()
    worker.say(FetchThread(request_id="r1", thread="1.0", before="5.0"))
    worker.say(FetchThread(request_id="r2", thread="2.0", before="5.0"))
    await until(lambda: ThreadFetched(request_id="r1", said=words[:1]) in worker.heard)
    await until(lambda: ThreadFetched(request_id="r2", code="thread_not_found") in worker.heard)


async def test_the_end_of_a_run_is_passed_on_and_then_answered(seam: Seam) -> None:
    ended = TurnEnded(op_id="end1", thread="1.0", messages=("1.1",), outcome="done")
    worker = await seam.spawner.worker()
    worker.say(ended)
    await until(lambda: Sent(op_id="end1", ref="") in worker.heard)
    assert seam.services.ended == [ended]


async def test_news_are_shown(seam: Seam) -> None:
    worker = await seam.spawner.worker()
    worker.say(Doing(thread="1.0", text="is working"))
    await until(lambda: seam.services.doings == [("shop", "1.0", "is working")])


async def test_a_question_is_answered_by_the_worker(seam: Seam) -> None:
    worker = await seam.spawner.worker()
    asked = asyncio.create_task(seam.workers.ask("shop", AskDiff(request_id="q1", turn="t1"), RunChanges))
    await until(lambda: AskDiff(request_id="q1", turn="t1") in worker.heard)
    changes = RunChanges(request_id="q1", body=b"y" * 2**19)
    worker.say(changes)
    assert await asked == changes


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (AskThread(request_id="q1", turn="t1"), ThreadTold(request_id="q1", thread="1.0")),
        (AskFound(request_id="q1", words="linker"), FoundTold(request_id="q1")),
    ],
)
async def test_so_is_every_other_question(seam: Seam, asked: Question, told: Told) -> None:
    worker = await seam.spawner.worker()
    answer = asyncio.create_task(seam.workers.ask("shop", asked, type(told)))
    await until(lambda: asked in worker.heard)
    worker.say(told)
    assert await answer == told


async def test_news_of_pull_requests_reaches_the_worker(seam: Seam) -> None:
    worker = await seam.spawner.worker()
    seam.workers.look_at_pulls("shop", (7,))
    await until(lambda: LookAtPulls(numbers=(7,)) in worker.heard)


async def test_a_worker_is_restarted(seam: Seam) -> None:
    worker = await seam.spawner.worker()
    seam.workers.restart("shop")
    await until(lambda: any(isinstance(each, Shutdown) and each.reason == "restart" for each in worker.heard))


async def test_a_row_says_how_the_repository_is(seam: Seam) -> None:
    await seam.spawner.worker()
    await until(lambda: [row.worker.state for row in seam.workers.rows()] == ["running"])
    assert [row.name for row in seam.workers.rows()] == ["shop"]
    assert seam.workers.down("shop") == ""


async def test_a_name_and_a_channel_are_one_repositorys(seam: Seam) -> None:
    for taken in (repo(), repo("other"), remote(), remote("other")):
        with pytest.raises(RegistryError):
            seam.workers.add(taken)
    with pytest.raises(RegistryError):
        await seam.workers.remove("unknown", 0)


async def test_after_its_removal_a_repository_gets_nothing_and_its_name_is_free(seam: Seam) -> None:
    await seam.spawner.worker()
    await seam.workers.remove("shop", 0)
    seam.workers.deliver(entry(1, "too late"))
    assert seam.workers.rows() == ()
    assert seam.services.settled == []


async def test_other_settings_reach_the_worker(seam: Seam) -> None:
    await seam.spawner.worker()
    row = seam.workers.rows()[0]
    settings = remote(channel="C02") if ":" in row.path else repo(channel="C02")
    seam.workers.reconfigure(settings, 0)
    await seam.spawner.worker(number=1)
    seam.workers.deliver(entry(1, "in the new channel", channel="C02"))
    disk = seam.spawner.disk()
    await until(lambda: disk.texts == ["in the new channel"])
