"""A worker that lies or floods: bounded, refused or killed, and nobody else notices."""

from __future__ import annotations

import signal

import pytest

from codebutler.clock import settle
from codebutler.model import Operation, Post, React, Update, Upload
from codebutler.protocol.messages import Audit, Send, SendFailed, Sent, Stored
from tests.workers.stage import stage

HUGE = "x" * 10**6


ORDINARY = Audit(user="U01", thread="1.1", kind="claude", text="hello", decision="done")


async def test_a_huge_audit_record_is_shortened() -> None:
    async with stage() as on:
        on.worker.say(Audit(user=HUGE, thread=HUGE, kind=HUGE, text=HUGE, decision=HUGE))
        await settle()
        ((_, kept),) = on.services.audits
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
        Post(text=HUGE),
        Post(text="x", blocks=({"type": "markdown", "text": HUGE},)),
        Update(target_ts="1.1", text=HUGE),
        Update(target_ts=HUGE, text="x"),
        React(target_ts="1.1", name=HUGE),
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


async def test_an_endless_operation_id_ends_the_worker() -> None:
    async with stage() as on:
        on.worker.say(Send(op_id=HUGE, operation=Post(text="x")))
        await settle()
        assert on.services.sent == []
        assert on.worker.signals == [signal.SIGKILL]


async def test_a_large_file_may_go() -> None:
    async with stage() as on:
        on.worker.say(Send(op_id="op1", operation=Upload(filename="a", content=b"x" * 10**6)))
        await settle()
        assert on.worker.heard[-1] == Sent(op_id="op1", ts="posted-op1")


async def test_a_worker_can_settle_only_what_it_was_sent() -> None:
    async with stage() as on:
        on.worker.say(Stored(seq=7))
        await settle()
        assert on.services.settled == []
        assert on.worker.signals == [signal.SIGKILL]
