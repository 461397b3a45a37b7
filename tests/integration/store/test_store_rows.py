"""What the store keeps of messages, turns, sessions, operations and approvals, and how it is found again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.config.section import BudgetSection, DailyLimit
from codebutler.domain.refs import MessageRef
from codebutler_worker.runtime.budget import NOBODY, lines
from codebutler_worker.store.rows import (
    ApprovalRow,
    BudgetAccount,
    InboxRow,
    SessionRow,
    Spent,
    UsageTotal,
    message_id,
    racers_conversation,
)
from codebutler_worker.store.unit_of_work import Store, UnitOfWork
from tests.integration.store.some_rows import a_message, a_turn, an_operation, path, store

__all__ = ["path", "store"]


def a_session(conversation: str, agent: str, session_id: str, *, updated_at: str = "t1") -> SessionRow:
    channel, _, thread = conversation.rpartition(":")
    return SessionRow(
        conversation=conversation,
        channel_id=channel,
        thread=thread,
        agent=agent,
        session_id=session_id,
        updated_at=updated_at,
        total_cost_usd=0.5,
    )


async def test_the_inbox_knows_a_key_for_ever(store: Store) -> None:
    assert await store.run(lambda uow: uow.inbox.add(InboxRow("message:C1:1.0", 1), known="keep"))
    assert not await store.run(lambda uow: uow.inbox.add(InboxRow("message:C1:1.0", 2), known="keep"))
    assert await store.run(lambda uow: uow.inbox.add(InboxRow("message:C1:2.0", 1), known="keep"))


async def test_messages_of_a_turn_come_by_their_order_not_by_their_names(store: Store) -> None:
    rows = [replace(a_message(name, "t1"), order=f"{int(name):016}") for name in ("10", "9")]

    def work(uow: UnitOfWork) -> None:
        for row in rows:
            uow.messages.add(row)

    await store.run(work)
    assert await store.run(lambda uow: uow.messages.find(turn_id="t1")) == rows[::-1]


async def test_messages_are_kept_edited_and_withdrawn(store: Store) -> None:
    rows = [replace(a_message(ts, "t1"), late=True, is_voice=True, agent="kimi") for ts in ("2.0", "1.0")]

    def work(uow: UnitOfWork) -> None:
        for row in rows:
            uow.messages.add(row)
        uow.messages.update(message_id("C1", "2.0"), content="edited")

    await store.run(work)
    assert await store.run(lambda uow: uow.messages.get(message_id("C1", "1.0"))) == rows[1]
    assert await store.run(lambda uow: uow.messages.get(message_id("C2", "1.0"))) is None
    edited = replace(rows[0], content="edited")
    assert await store.run(lambda uow: uow.messages.find(turn_id="t1")) == [rows[1], edited]

    await store.run(lambda uow: uow.messages.update(message_id("C1", "1.0"), turn_id=None))
    await store.run(
        lambda uow: [
            uow.messages.change({"acked": True}, id=row.id, content=text)
            for row, text in ((rows[0], "edited"), (rows[1], "something else"))
        ]
    )
    assert await store.run(lambda uow: uow.messages.find(turn_id="t1")) == [replace(edited, acked=True)]
    assert await store.run(lambda uow: uow.messages.get(message_id("C1", "1.0"))) == replace(
        rows[1], turn_id=None
    )
    await store.run(lambda uow: uow.messages.update(message_id("C1", "1.0"), turn_id="t2"))
    assert await store.run(lambda uow: uow.messages.find(turn_id="t2")) == [replace(rows[1], turn_id="t2")]
    with pytest.raises(sqlite3.IntegrityError):
        await store.run(lambda uow: uow.messages.add(rows[0]))


async def test_turns_move_and_are_found_by_state_and_conversation(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        for turn_id in ("b", "a", "c"):
            uow.turns.add(a_turn(turn_id))
        uow.turns.add(a_turn("x", "C1:9.0"))
        uow.turns.update("b", state="running", started_at="now", cost_usd=0.25, input_tokens=3)

    await store.run(work)
    found = await store.run(lambda uow: uow.turns.find(state=("queued", "running")))
    assert [turn.id for turn in found] == ["b", "a", "c", "x"]
    assert found[0] == replace(a_turn("b"), state="running", started_at="now", cost_usd=0.25, input_tokens=3)
    await store.run(lambda uow: uow.turns.update("x", state="done"))
    (latest,) = await store.run(lambda uow: uow.turns.find(newest=1, conversation="C1:9.0"))
    assert latest is not None
    assert latest.state == "done"
    assert len(await store.run(lambda uow: uow.turns.find(state="queued"))) == 2
    with pytest.raises(KeyError):
        await store.run(lambda uow: uow.turns.update("nobody", state="done"))


async def test_the_newest_turns_come_first_of_one_conversation_or_of_all(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        for turn_id, conversation in (("a", "C1:1.0"), ("b", "C1:9.0"), ("c", "C1:1.0")):
            uow.turns.add(a_turn(turn_id, conversation))

    await store.run(work)
    newest = await store.run(lambda uow: uow.turns.find(newest=2))
    assert [turn.id for turn in newest] == ["c", "b"]
    of_one = await store.run(lambda uow: uow.turns.find(newest=5, conversation="C1:1.0"))
    assert [turn.id for turn in of_one] == ["c", "a"]


async def test_what_turns_used_is_summed_by_when_they_began(store: Store) -> None:
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
    (spent,) = await store.run(lambda uow: uow.turns.spent_between("2026-01-02", "2027", NOBODY))
    assert spent.used == UsageTotal(usd=0.5, tokens=0, turns=2)
    assert await store.run(lambda uow: uow.turns.spent_between("2027", "2028", NOBODY)) == []


def spent_in_2026(account: BudgetAccount, uow: UnitOfWork) -> list[Spent]:
    return uow.turns.spent_between("2026", "2027", account)


async def test_a_day_of_many_turns_is_a_few_rows_that_tell_an_account_its_own(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        for number in range(300):
            turn = replace(a_turn(f"t{number}", f"C1:{number}"), state="done", started_at="2026-01-02")
            user, job = f"U{number % 3}", ("", "weekly", "daily")[number % 3]
            uow.turns.add(replace(turn, user_id=user, job=job, cost_usd=1.0))

    await store.run(work)
    mine, job = BudgetAccount("U0", "C1:9"), BudgetAccount("U1", "C1:7", "weekly")
    limit = DailyLimit(turns_per_day=1)
    budget = BudgetSection(repo=limit, user=limit, thread=limit, job=limit)
    for account, used in ((mine, [300, 100, 1]), (job, [300, 1, 100])):
        spent = await store.run(partial(spent_in_2026, account))
        assert len(spent) <= 5
        assert [line.used for line in lines(budget, spent, account)] == used


async def test_what_the_agents_of_a_race_use_is_their_threads(store: Store) -> None:
    def work(uow: UnitOfWork) -> None:
        for number in range(2):
            turn = a_turn(f"t{number}", racers_conversation("C1:9", "k", number))
            uow.turns.add(replace(turn, state="done", started_at="2026-01-02", user_id="U0", cost_usd=1.0))

    await store.run(work)
    for conversation, used in (("C1:9", 2), ("C1:8", 0)):
        account = BudgetAccount("U0", conversation)
        spent = await store.run(partial(spent_in_2026, account))
        budget = BudgetSection(thread=DailyLimit(turns_per_day=1))
        assert [line.used for line in lines(budget, spent, account)] == [used]


async def test_a_session_in_a_race_is_not_the_channels(store: Store) -> None:
    await store.run(lambda uow: uow.sessions.put(a_session("C1:", "claude", "s1")))
    beside = a_session(racers_conversation("C1:", "k", 0), "claude", "s2")
    await store.run(lambda uow: uow.sessions.put(beside))
    found = [await store.run(partial(session_of, conversation=each)) for each in ("C1:", beside.conversation)]
    assert [row.session_id for row in found if row] == ["s1", "s2"]


def session_of(uow: UnitOfWork, conversation: str) -> SessionRow | None:
    return uow.sessions.get(conversation, "claude")


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


async def test_the_channel_follows_the_newest_claude_session_only(store: Store) -> None:
    await store.run(lambda uow: uow.sessions.put(a_session("C1:1.0", "claude", "s1")))
    await store.run(lambda uow: uow.sessions.put(a_session("C1:2.0", "kimi", "k1")))
    channel = await store.run(lambda uow: uow.sessions.get("C1:", "claude"))
    assert channel is not None
    assert (channel.session_id, channel.conversation, channel.thread) == ("s1", "C1:", "")
    assert await store.run(lambda uow: uow.sessions.get("C1:", "kimi")) is None


@pytest.mark.parametrize("channel", ["C1", "tg:-100123"])
async def test_a_channel_wide_session_lives_in_the_old_table(store: Store, path: Path, channel: str) -> None:
    row = a_session(f"{channel}:", "claude", "s1")
    other = a_session(f"{channel}:", "kimi", "k1")
    await store.run(lambda uow: uow.sessions.put(row))
    await store.run(lambda uow: uow.sessions.put(other))
    assert await store.run(lambda uow: uow.sessions.get(f"{channel}:", "claude")) == row
    assert await store.run(lambda uow: uow.sessions.get(f"{channel}:", "kimi")) == other
    with closing(sqlite3.connect(path)) as reader:
        sessions = reader.execute("SELECT channel_id, session_id, updated_at FROM sessions").fetchall()
    assert sessions == [(channel, "s1", "t1")]
    await store.run(lambda uow: uow.sessions.forget(f"{channel}:"))
    assert await store.run(lambda uow: uow.sessions.get(f"{channel}:", "claude")) is None
    assert await store.run(lambda uow: uow.sessions.get(f"{channel}:", "kimi")) is None


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
    assert len(await store.run(lambda uow: uow.outbox.find(state="pending"))) == 3
    await store.run(lambda uow: uow.settle("a", "7.0"))
    await store.run(lambda uow: uow.settle("b", ""))
    await store.run(lambda uow: uow.settle("a", code="late"))
    await store.run(lambda uow: uow.settle("c", code="too_long"))
    first = await store.run(lambda uow: uow.outbox.get("a"))
    upload = await store.run(lambda uow: uow.outbox.get("b"))
    refused = await store.run(lambda uow: uow.outbox.get("c"))
    assert first is not None
    assert (first.state, first.ref, first.code, first.payload) == ("posted", "7.0", None, "{}")
    assert upload is not None
    assert upload.payload == ""
    assert refused is not None
    assert (refused.state, refused.code) == ("failed", "too_long")
    assert await store.run(lambda uow: uow.outbox.find(state="pending")) == []


async def test_an_operation_of_an_unknown_turn_is_refused(store: Store) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        await store.run(lambda uow: uow.outbox.add(replace(an_operation("a"), turn_id="nobody")))
    assert await store.run(lambda uow: uow.outbox.find(state="pending")) == []


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
    assert await store.run(lambda uow: uow.approvals.find(state="pending")) == [row]
    assert await store.run(lambda uow: uow.approvals.find(state="pending", turn_id="other")) == []
    assert await store.run(
        lambda uow: uow.approvals.decide("a1", "allowed", "U1", "fine", at="2026-01-01T00:00:00+00:00")
    )
    assert not await store.run(
        lambda uow: uow.approvals.decide("a1", "denied", "U2", at="2026-01-01T00:00:00+00:00")
    )
    assert not await store.run(
        lambda uow: uow.approvals.decide("a2", "denied", "U2", at="2026-01-01T00:00:00+00:00")
    )
    decided = replace(
        row, state="allowed", decided_by="U1", decided_at="2026-01-01T00:00:00+00:00", reason="fine"
    )
    assert await store.run(lambda uow: uow.approvals.get("a1")) == decided
    assert await store.run(lambda uow: uow.approvals.find(state="pending")) == []


@pytest.mark.parametrize(
    ("channel", "ref"), [("C1", "1.0"), ("tg:-100123", "000000000007"), ("tg:5", "000000000007.5")]
)
def test_a_row_knows_by_what_its_channel_names_the_message(channel: str, ref: str) -> None:
    assert replace(a_message("1.0"), id=message_id(channel, MessageRef(ref)), channel_id=channel).key == ref
