"""The store's transactions and repositories, over a real file."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from codebutler.clock import ManualClock
from codebutler.errors import StoreError
from codebutler_worker.desk.states import STATES, UNFINISHED
from codebutler_worker.store.open import open_store
from codebutler_worker.store.rows import (
    ApprovalRow,
    ErrandRow,
    MessageRow,
    OutboxRow,
    SessionRow,
    TurnRow,
    TurnState,
    message_id,
)
from codebutler_worker.store.unit_of_work import Store, UnitOfWork


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".codebutler" / "store.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    async with open_store(path, ManualClock()) as opened:
        yield opened


def a_message(ts: str, turn_id: str | None = None) -> MessageRow:
    return MessageRow(
        id=message_id("C1", ts),
        from_id="U1",
        channel_id="C1",
        content=f"text of {ts}",
        timestamp="2026-01-01T00:00:00+00:00",
        platform_msg_id=ts,
        thread_ts=ts,
        turn_id=turn_id,
    )


def a_turn(turn_id: str, conversation: str = "C1:1.0") -> TurnRow:
    return TurnRow(
        id=turn_id,
        conversation=conversation,
        channel_id="C1",
        thread_ts="1.0",
        agent="claude",
        created_at="2026-01-01T00:00:00+00:00",
    )


def an_operation(op_id: str) -> OutboxRow:
    return OutboxRow(op_id=op_id, conversation="C1:1.0", kind="post", payload="{}", created_at="2026")


def a_session(conversation: str, agent: str, session_id: str, *, updated_at: str = "t1") -> SessionRow:
    channel, _, thread = conversation.partition(":")
    return SessionRow(
        conversation=conversation,
        channel_id=channel,
        thread_ts=thread,
        agent=agent,
        session_id=session_id,
        updated_at=updated_at,
        total_cost_usd=0.5,
    )


async def test_a_transaction_is_on_disk_when_run_returns(store: Store, path: Path) -> None:
    await store.run(lambda uow: uow.inbox.accept("k", 1))
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT key, seq FROM inbox").fetchall() == [("k", 1)]


async def test_an_exception_undoes_the_whole_transaction(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        uow.inbox.accept("k", 1)
        uow.turns.add(a_turn("t1"))
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await store.run(work)
    assert await store.run(lambda uow: uow.turns.get("t1")) is None
    assert await store.run(lambda uow: uow.inbox.accept("k", 2))


async def test_transactions_run_one_by_one_in_the_order_they_were_asked_for(store: Store) -> None:
    threads: set[str] = set()

    def work(number: int, uow: UnitOfWork) -> None:
        threads.add(threading.current_thread().name)
        seen = len(uow.outbox.pending())
        assert seen == number
        uow.outbox.add(an_operation(f"op{number}"))

    await asyncio.gather(*(store.run(partial(work, n)) for n in range(30)))
    assert len(threads) == 1
    pending = await store.run(lambda uow: uow.outbox.pending())
    assert [row.op_id for row in pending] == [f"op{n}" for n in range(30)]


async def test_a_cancelled_caller_leaves_a_whole_transaction_and_a_working_store(store: Store) -> None:
    started, go = threading.Event(), threading.Event()

    def work(uow: UnitOfWork) -> None:
        uow.turns.add(a_turn("t1"))
        started.set()
        assert go.wait(10)
        uow.turns.add(a_turn("t2"))

    task = asyncio.create_task(store.run(work))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    queued = await store.run(lambda uow: uow.turns.in_states("queued"))
    assert [turn.id for turn in queued] == ["t1", "t2"]


async def test_a_full_disk_is_told_in_one_line_without_what_people_wrote(store: Store) -> None:
    store._raw.execute("PRAGMA max_page_count = 1")
    secret = "my secret words " * 5000
    with pytest.raises(StoreError, match="the disk is full: free some space") as caught:
        await store.run(lambda uow: uow.messages.add(replace(a_message("1.0"), content=secret)))
    assert "my secret" not in f"{caught.value} {caught.value.__cause__}"
    assert "\n" not in str(caught.value)
    store._raw.execute("PRAGMA max_page_count = 1000000")
    await store.run(lambda uow: uow.messages.add(a_message("1.0")))


@pytest.mark.parametrize("state", STATES)
async def test_it_knows_whether_a_turn_is_unfinished(store: Store, state: TurnState) -> None:
    assert not await store.anything_open(UNFINISHED)
    await store.run(lambda uow: uow.turns.add(replace(a_turn("t1"), state=state)))
    assert await store.anything_open(UNFINISHED) is (state in UNFINISHED)


async def test_it_knows_whether_an_operation_waits(store: Store) -> None:
    await store.run(lambda uow: uow.outbox.add(an_operation("op1")))
    assert await store.anything_open(UNFINISHED)
    await store.run(lambda uow: uow.outbox.posted("op1", "2.0"))
    assert not await store.anything_open(UNFINISHED)


async def test_it_knows_whether_an_errand_is_left(store: Store) -> None:
    errand = ErrandRow(id="e1", name="c", conversation="C1:1.0", user_id="U1", created_at="2026")
    await store.run(lambda uow: uow.errands.add(errand))
    assert await store.anything_open(UNFINISHED)
    await store.run(lambda uow: uow.errands.done("e1"))
    assert not await store.anything_open(UNFINISHED)


async def test_asked_what_is_open_a_store_taken_away_says_so(store: Store, path: Path) -> None:
    path.rename(path.with_name("elsewhere.db"))
    with pytest.raises(StoreError, match="was removed or replaced"):
        await store.anything_open(UNFINISHED)


async def test_a_closed_store_says_so(path: Path) -> None:
    store = open_store(path, ManualClock())
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="is closed"):
        await store.run(lambda uow: uow.outbox.count_pending())


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_store_taken_away_while_open_commits_nothing(
    store: Store, path: Path, *, replaced: bool
) -> None:
    await store.run(lambda uow: uow.inbox.accept("k", 1))
    path.rename(path.with_name("elsewhere.db"))
    if replaced:
        shutil.copy(path.with_name("elsewhere.db"), path)
    with pytest.raises(StoreError, match="was removed or replaced"):
        await store.run(lambda uow: uow.inbox.accept("l", 2))


async def test_what_was_stored_is_there_after_reopening(path: Path) -> None:
    async with open_store(path, ManualClock()) as store:
        await store.run(lambda uow: uow.turns.add(a_turn("t1")))
    async with open_store(path, ManualClock()) as store:
        assert await store.run(lambda uow: uow.turns.get("t1")) == a_turn("t1")


async def test_the_inbox_knows_a_key_for_ever(store: Store) -> None:
    assert await store.run(lambda uow: uow.inbox.accept("message:C1:1.0", 1))
    assert not await store.run(lambda uow: uow.inbox.accept("message:C1:1.0", 2))
    assert await store.run(lambda uow: uow.inbox.accept("message:C1:2.0", 1))


async def test_messages_are_kept_edited_and_withdrawn(store: Store) -> None:
    rows = [replace(a_message(ts, "t1"), late=True, is_voice=True, agent="kimi") for ts in ("2.0", "1.0")]

    def work(uow: UnitOfWork) -> None:
        for row in rows:
            uow.messages.add(row)
        uow.messages.set_text("C1", "2.0", "edited")

    await store.run(work)
    assert await store.run(lambda uow: uow.messages.get("C1", "1.0")) == rows[1]
    assert await store.run(lambda uow: uow.messages.get("C2", "1.0")) is None
    edited = replace(rows[0], content="edited")
    assert await store.run(lambda uow: uow.messages.of_turn("t1")) == [rows[1], edited]

    await store.run(lambda uow: uow.messages.detach("C1", "1.0"))
    await store.run(lambda uow: uow.messages.acknowledge("t1"))
    assert await store.run(lambda uow: uow.messages.of_turn("t1")) == [replace(edited, acked=True)]
    assert await store.run(lambda uow: uow.messages.get("C1", "1.0")) == replace(rows[1], turn_id=None)
    await store.run(lambda uow: uow.messages.attach("C1", "1.0", "t2"))
    assert await store.run(lambda uow: uow.messages.of_turn("t2")) == [replace(rows[1], turn_id="t2")]
    with pytest.raises(IntegrityError):
        await store.run(lambda uow: uow.messages.add(rows[0]))


async def test_turns_move_and_are_found_by_state_and_conversation(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        for turn_id in ("b", "a", "c"):
            uow.turns.add(a_turn(turn_id))
        uow.turns.add(a_turn("x", "C1:9.0"))
        uow.turns.update("b", state="running", started_at="now", cost_usd=0.25, input_tokens=3)

    await store.run(work)
    found = await store.run(lambda uow: uow.turns.in_states("queued", "running"))
    assert [turn.id for turn in found] == ["b", "a", "c", "x"]
    assert found[0] == replace(a_turn("b"), state="running", started_at="now", cost_usd=0.25, input_tokens=3)
    newest = await store.run(lambda uow: uow.turns.open_of("C1:1.0"))
    assert newest is not None
    assert newest.id == "c"
    await store.run(lambda uow: uow.turns.update("x", state="done"))
    assert await store.run(lambda uow: uow.turns.open_of("C1:9.0")) is None
    latest = await store.run(lambda uow: uow.turns.latest_of("C1:9.0"))
    assert latest is not None
    assert latest.state == "done"
    assert await store.run(lambda uow: uow.turns.count("queued")) == 2
    with pytest.raises(KeyError):
        await store.run(lambda uow: uow.turns.update("nobody", state="done"))


async def test_the_newest_turns_come_first_of_one_conversation_or_of_all(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        for turn_id, conversation in (("a", "C1:1.0"), ("b", "C1:9.0"), ("c", "C1:1.0")):
            uow.turns.add(a_turn(turn_id, conversation))

    await store.run(work)
    newest = await store.run(lambda uow: uow.turns.newest(2))
    assert [turn.id for turn in newest] == ["c", "b"]
    of_one = await store.run(lambda uow: uow.turns.newest(5, "C1:1.0"))
    assert [turn.id for turn in of_one] == ["c", "a"]


async def test_what_turns_cost_is_summed_from_a_moment_on(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        for turn_id, finished_at, usd in (
            ("a", "2026-01-01", 1.0),
            ("b", "2026-01-02", 0.5),
            ("c", "2026-01-03", None),
        ):
            done = replace(a_turn(turn_id), state="done", started_at=finished_at)
            uow.turns.add(replace(done, finished_at=finished_at, cost_usd=usd))
        uow.turns.add(a_turn("d"))
        # Dropped before it ran.
        uow.turns.add(replace(a_turn("e"), state="stopped", finished_at="2026-01-03"))

    await store.run(work)
    assert await store.run(lambda uow: uow.turns.cost_since("2026-01-02")) == (2, 0.5)
    assert await store.run(lambda uow: uow.turns.cost_since("2027")) == (0, 0.0)


async def test_a_thread_has_a_session_per_agent(store: Store) -> None:
    claude, kimi = a_session("C1:1.0", "claude", "s1"), a_session("C1:1.0", "kimi", "k1")
    await store.run(lambda uow: uow.sessions.put(claude))
    await store.run(lambda uow: uow.sessions.put(kimi))
    assert await store.run(lambda uow: uow.sessions.get("C1:1.0", "claude")) == claude
    assert await store.run(lambda uow: uow.sessions.get("C1:1.0", "kimi")) == kimi
    assert await store.run(lambda uow: uow.sessions.get("C1:2.0", "claude")) is None
    newer = replace(claude, session_id="s2", updated_at="t2", total_cost_usd=1.5)
    await store.run(lambda uow: uow.sessions.put(newer))
    assert await store.run(lambda uow: uow.sessions.get("C1:1.0", "claude")) == newer
    assert await store.run(lambda uow: uow.sessions.recent()) == [newer, kimi]


async def test_the_channel_follows_the_newest_claude_session_only(store: Store) -> None:
    await store.run(lambda uow: uow.sessions.put(a_session("C1:1.0", "claude", "s1")))
    await store.run(lambda uow: uow.sessions.put(a_session("C1:2.0", "kimi", "k1")))
    channel = await store.run(lambda uow: uow.sessions.get("C1:", "claude"))
    assert channel is not None
    assert (channel.session_id, channel.conversation, channel.thread_ts) == ("s1", "C1:", "")
    assert await store.run(lambda uow: uow.sessions.get("C1:", "kimi")) is None


async def test_a_channel_wide_session_lives_in_the_old_table(store: Store, path: Path) -> None:
    row = a_session("C1:", "claude", "s1")
    other = a_session("C1:", "kimi", "k1")
    await store.run(lambda uow: uow.sessions.put(row))
    await store.run(lambda uow: uow.sessions.put(other))
    assert await store.run(lambda uow: uow.sessions.get("C1:", "claude")) == row
    assert await store.run(lambda uow: uow.sessions.get("C1:", "kimi")) == other
    with closing(sqlite3.connect(path)) as reader:
        sessions = reader.execute("SELECT channel_id, session_id, updated_at FROM sessions").fetchall()
    assert sessions == [("C1", "s1", "t1")]
    await store.run(lambda uow: uow.sessions.forget("C1:"))
    assert await store.run(lambda uow: uow.sessions.get("C1:", "claude")) is None
    assert await store.run(lambda uow: uow.sessions.get("C1:", "kimi")) is None


async def test_forgetting_a_thread_leaves_the_others(store: Store) -> None:
    first, second = a_session("C1:1.0", "claude", "s1"), a_session("C1:2.0", "claude", "s2")
    await store.run(lambda uow: uow.sessions.put(first))
    await store.run(lambda uow: uow.sessions.put(second))
    await store.run(lambda uow: uow.sessions.forget("C1:1.0"))
    assert await store.run(lambda uow: uow.sessions.get("C1:1.0", "claude")) is None
    assert await store.run(lambda uow: uow.sessions.get("C1:2.0", "claude")) == second
    channel = await store.run(lambda uow: uow.sessions.get("C1:", "claude"))
    assert channel is not None
    assert channel.session_id == "s2"
    await store.run(lambda uow: uow.sessions.forget("C1:2.0"))
    assert await store.run(lambda uow: uow.sessions.get("C1:", "claude")) is None


async def test_the_outbox_ends_each_operation_once(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        uow.outbox.add(an_operation("a"))
        uow.outbox.add(replace(an_operation("b"), kind="upload", payload="content"))
        uow.outbox.add(an_operation("c"))

    await store.run(work)
    assert await store.run(lambda uow: uow.outbox.count_pending()) == 3
    await store.run(lambda uow: uow.outbox.posted("a", "7.0"))
    await store.run(lambda uow: uow.outbox.posted("b", ""))
    await store.run(lambda uow: uow.outbox.failed("a", "late"))
    await store.run(lambda uow: uow.outbox.failed("c", "too_long"))
    first = await store.run(lambda uow: uow.outbox.get("a"))
    upload = await store.run(lambda uow: uow.outbox.get("b"))
    refused = await store.run(lambda uow: uow.outbox.get("c"))
    assert first is not None
    assert (first.state, first.ts, first.code, first.payload) == ("posted", "7.0", None, "{}")
    assert upload is not None
    assert upload.payload == ""
    assert refused is not None
    assert (refused.state, refused.code) == ("failed", "too_long")
    assert await store.run(lambda uow: uow.outbox.pending()) == []


async def test_an_update_that_waits_is_overwritten_unless_it_is_on_its_way(store: Store) -> None:
    await store.run(lambda uow: uow.turns.add(a_turn("t1")))
    await store.run(lambda uow: uow.outbox.add(replace(an_operation("post"), turn_id="t1")))
    assert await store.run(lambda uow: uow.outbox.replace_update("post", "1", "u1")) == "u1"
    assert await store.run(lambda uow: uow.outbox.replace_update("post", "2", "u2")) == "u1"
    assert await store.run(lambda uow: uow.outbox.replace_update("post", "3", "u3", {"u1"})) == "u3"
    assert await store.run(lambda uow: uow.outbox.replace_update("post", "4", "u4", {"u1"})) == "u3"
    pending = await store.run(lambda uow: uow.outbox.pending())
    assert [(row.op_id, row.payload) for row in pending] == [("post", "{}"), ("u1", "2"), ("u3", "4")]
    assert (pending[1].turn_id, pending[1].conversation, pending[1].target_op_id) == ("t1", "C1:1.0", "post")
    await store.run(lambda uow: uow.outbox.posted("u1", ""))
    await store.run(lambda uow: uow.outbox.posted("u3", ""))
    assert await store.run(lambda uow: uow.outbox.replace_update("post", "5", "u5")) == "u5"
    with pytest.raises(KeyError):
        await store.run(lambda uow: uow.outbox.replace_update("nothing", "6", "u6"))


async def test_an_operation_of_an_unknown_turn_is_refused(store: Store) -> None:
    with pytest.raises(IntegrityError):
        await store.run(lambda uow: uow.outbox.add(replace(an_operation("a"), turn_id="nobody")))
    assert await store.run(lambda uow: uow.outbox.count_pending()) == 0


async def test_an_approval_is_decided_once(store: Store) -> None:
    row = ApprovalRow(
        id="a1",
        turn_id="t1",
        conversation="C1:1.0",
        tool="Bash",
        action_json="{}",
        digest="d",
        requested_at="2026",
        expires_at="2027",
    )
    await store.run(lambda uow: uow.turns.add(a_turn("t1")))
    await store.run(lambda uow: uow.approvals.add(row))
    assert await store.run(lambda uow: uow.approvals.pending()) == [row]
    assert await store.run(lambda uow: uow.approvals.pending("other")) == []
    assert await store.run(lambda uow: uow.approvals.decide("a1", "allowed", "U1", "fine"))
    assert not await store.run(lambda uow: uow.approvals.decide("a1", "denied", "U2"))
    assert not await store.run(lambda uow: uow.approvals.decide("a2", "denied", "U2"))
    decided = replace(
        row, state="allowed", decided_by="U1", decided_at="2026-01-01T00:00:00+00:00", reason="fine"
    )
    assert await store.run(lambda uow: uow.approvals.get("a1")) == decided
    assert await store.run(lambda uow: uow.approvals.pending()) == []
