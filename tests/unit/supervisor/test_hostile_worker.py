"""A worker that lies or floods: bounded, refused or killed, and nobody else notices."""

from __future__ import annotations

import signal

import pytest

from codebutler.domain.message import Button, said
from codebutler.domain.model import Operation, Post, React, Update, Upload
from codebutler.protocol.messages import (
    MAX_UPLOAD_BYTES,
    Audit,
    Fetch,
    Heartbeat,
    Log,
    Send,
    SendFailed,
    Sent,
    Stored,
    UploadPiece,
)
from tests.clock import settle
from tests.workers.stage import stage

HUGE = "x" * 10**6


ORDINARY = Audit(user="U01", thread="1.1", kind="claude", text="hello", decision="done")


async def test_a_huge_audit_record_is_shortened() -> None:
    async with stage() as on:
        on.worker.say(Audit(user=HUGE, thread=HUGE, kind=HUGE, text=HUGE, decision=HUGE))
        await settle()
        (kept,) = on.services.audits
        assert kept.text.startswith("x" * 8000)
        assert all(
            len(getattr(kept, name)) < 10_000 for name in ("user", "thread", "kind", "text", "decision")
        )


async def test_a_flood_of_audit_records_ends_the_worker() -> None:
    async with stage() as on:
        for _ in range(600):
            on.worker.say(ORDINARY)
        await settle(1500)
        assert len(on.services.audits) == 500
        assert on.worker.signals == [signal.SIGKILL]
        assert "floods the audit log" in on.services.log_text("shop")


@pytest.mark.parametrize(
    "operation",
    [
        Post(message=said(HUGE)),
        Post(message=said("x", Button(HUGE, "a", "v"))),
        Update(target="1.1", message=said(HUGE)),
        Update(target=HUGE, message=said("x")),
        React(target=HUGE, mark="done"),
        Upload(filename=HUGE, content=b"x"),
        Upload(filename="a", content=b"x", comment=HUGE),
    ],
)
async def test_what_slack_could_never_take_is_refused_at_once(operation: Operation) -> None:
    async with stage() as on:
        on.worker.say(Send(op_id="op1", operation=operation))
        await settle()
        assert on.services.sent == []
        assert on.worker.heard[-1] == SendFailed(op_id="op1", code="msg_too_long")


async def test_a_file_comes_in_pieces_and_is_sent_whole() -> None:
    async with stage() as on:
        pieces = [UploadPiece(op_id="op1", data=data) for data in (b"one ", b"two")]
        on.worker.say(*pieces, Send(op_id="op1", operation=Upload(filename="a", content=b"")))
        on.worker.say(Send(op_id="op2", operation=Upload(filename="b", content=b"three")))
        await settle()
        contents = [op.content for _, _, op, _ in on.services.sent if isinstance(op, Upload)]
        assert contents == [b"one two", b"three"]


async def test_pieces_of_one_file_never_get_into_another() -> None:
    async with stage() as on:
        on.worker.say(UploadPiece(op_id="op1", data=b"one"), UploadPiece(op_id="op2", data=b"two"))
        on.worker.say(Send(op_id="op2", operation=Upload(filename="a", content=b"")))
        on.worker.say(Send(op_id="op1", operation=Upload(filename="b", content=b"")))
        await settle()
        contents = [op.content for _, _, op, _ in on.services.sent if isinstance(op, Upload)]
        assert contents == [b"two", b""]


async def test_a_file_without_end_ends_the_worker() -> None:
    async with stage() as on:
        piece = UploadPiece(op_id="op1", data=b"x" * 2**20)
        on.worker.say(*[piece] * (MAX_UPLOAD_BYTES // 2**20 + 1))
        await settle(200)
        assert on.worker.signals == [signal.SIGKILL]
        assert "sends a file above" in on.services.log_text("shop")


async def test_a_worker_that_does_not_read_is_killed() -> None:
    async with stage() as on:
        on.worker.unread_bytes = 2**21
        on.worker.say(Heartbeat())
        await settle()
        await on.clock.advance(15.1)
        assert signal.SIGKILL in on.worker.signals
        assert "has read nothing for 15 s" in on.services.log_text("shop")


async def test_refused_files_fill_the_log_no_further_than_the_worker_itself_may() -> None:
    async with stage() as on:
        for number in range(3000):
            on.worker.say(Fetch(request_id=f"r{number}", file_id="F0"))
            await settle(3)
        assert len(on.services.logs) < 2100
        on.worker.die(1)
        await settle()
        assert "log lines dropped" in on.services.log_text("shop")


async def test_a_new_process_of_a_worker_has_no_new_share_of_the_log() -> None:
    async with stage() as on:
        line = Log(tag="ERR", text="x" * 8000)
        on.worker.say(*[line] * 1200)
        await settle(3000)
        on.worker.die(1)
        await on.clock.advance(5)
        on.worker.say(*[line] * 100)
        await settle(500)
        assert len(on.spawner.workers) == 2
        written = sum(len(text) for _, _, text in on.services.logs)
        assert 8 * 10**6 < written < 8.6 * 10**6


async def test_a_large_file_may_go() -> None:
    async with stage() as on:
        on.worker.say(Send(op_id="op1", operation=Upload(filename="a", content=b"x" * 10**6)))
        await settle()
        assert on.worker.heard[-1] == Sent(op_id="op1", ref="posted-op1")


async def test_a_worker_can_settle_only_what_it_was_sent() -> None:
    async with stage() as on:
        on.worker.say(Stored(seq=7))
        await settle()
        assert on.services.settled == []
        assert on.worker.signals == [signal.SIGKILL]
