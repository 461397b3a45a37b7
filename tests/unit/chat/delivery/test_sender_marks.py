"""Reactions through the sender: what is there for good comes soon, whatever else waits."""

from __future__ import annotations

import pytest

from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.model import React, Value
from tests.clock import settle
from tests.unit.chat.delivery.test_sender import Bench, C, bench

QUEUED, WORKING, DONE = "queued", "working", "done"


def ask(
    b: Bench, ts: str, name: str, *, remove: bool = False, unsure: bool = False, channel: str = C
) -> None:
    """A worker asks for a mark, or for its removal."""
    op_id = f"{ts}{'-' if remove else '+'}{name}"
    value: Value = "outcome" if name == DONE else "sign"
    react = React(target=ts, mark=name, remove=remove, value=value)
    b.submit(op_id, react, unsure=unsure, channel=channel)


def starts(b: Bench, ts: str, channel: str = C) -> None:
    ask(b, ts, WORKING, channel=channel)
    ask(b, ts, QUEUED, remove=True, channel=channel)


def ends(b: Bench, ts: str, channel: str = C) -> None:
    ask(b, ts, DONE, channel=channel)
    ask(b, ts, WORKING, remove=True, channel=channel)


def said(b: Bench, count: int, channel: str = C) -> list[str]:
    return [b.chat.say(channel, "U1", "question") for _ in range(count)]


def sent(b: Bench) -> list[tuple[str, bool]]:
    """The reactions that took effect."""
    return [(d.operation.mark, d.operation.remove) for d in b.chat.done if isinstance(d.operation, React)]


async def test_a_quiet_turn_shows_every_mark_and_the_new_one_before_the_old_one_goes() -> None:
    async with bench() as b:
        [ts] = said(b, 1)
        ask(b, ts, QUEUED)
        await settle()
        assert b.chat.marks(C, ts) == {QUEUED}
        starts(b, ts)
        await settle()
        ends(b, ts)
        await settle()
        assert sent(b) == [(QUEUED, False), (WORKING, False), (QUEUED, True), (DONE, False), (WORKING, True)]
        assert b.sender.pending == 0


async def test_a_mark_that_waits_and_its_removal_are_both_spared() -> None:
    async with bench() as b:
        asked = said(b, 60)
        for ts in asked:
            ask(b, ts, WORKING)
            ask(b, ts, DONE)
        await settle()
        for ts in asked:
            ask(b, ts, WORKING, remove=True)
        await b.passes(120)
        assert b.sender.pending == 0
        assert [b.chat.marks(C, ts) for ts in asked] == [{DONE}] * 60


async def test_the_end_shows_at_once_though_removals_wait() -> None:
    async with bench() as b:
        old = said(b, 40)
        for ts in old:
            await b.chat.react(C, React(target=ts, mark=WORKING))
            ask(b, ts, WORKING, remove=True)
        await settle()
        assert b.sender.pending > 20
        [ts] = said(b, 1)
        ends(b, ts)
        await settle()
        assert DONE in b.chat.marks(C, ts)


async def test_while_removals_wait_a_sign_is_left_out_and_needs_no_removal() -> None:
    async with bench() as b:
        old = said(b, 40)
        for ts in old:
            await b.chat.react(C, React(target=ts, mark=WORKING))
            ask(b, ts, WORKING, remove=True)
        await settle()
        short, long = said(b, 2)
        for ts in (short, long):
            ask(b, ts, QUEUED)
            await settle()
            assert b.tasks[-1].done()
        assert b.chat.marks(C, short) == set()
        before = len(b.chat.done)
        ask(b, short, QUEUED, remove=True)
        await settle()
        assert b.tasks[-1].done()
        assert len(b.chat.done) == before
        await b.passes(240)
        assert b.chat.marks(C, long) == b.chat.marks(C, short) == set()


async def test_ten_turns_a_minute_over_twenty_repositories_are_kept_up_with() -> None:
    """For an hour: the end shows within seconds, and what has to go does not pile up."""
    async with bench() as b:
        worst = 0
        for turn in range(600):
            channel = f"C{turn % 20}"
            [ts] = said(b, 1, channel)
            ask(b, ts, QUEUED, channel=channel)
            await b.passes(1)
            starts(b, ts, channel)
            await b.passes(4)
            ends(b, ts, channel)
            await b.passes(1)
            assert DONE in b.chat.marks(channel, ts)
            worst = max(worst, b.sender.pending)
        await b.passes(60)
        assert b.sender.pending == 0
        assert worst < 20
        shown = [name for name, remove in sent(b) if not remove]
        assert shown.count(WORKING) > 500


async def test_a_burst_of_turns_comes_to_rest_with_the_right_marks() -> None:
    async with bench() as b:
        asked = [(f"C{n % 20}", ts) for n in range(200) for ts in said(b, 1, f"C{n % 20}")]
        for channel, ts in asked:
            ask(b, ts, QUEUED, channel=channel)
        await b.passes(1)
        for channel, ts in asked:
            starts(b, ts, channel)
        await b.passes(1)
        for channel, ts in asked:
            ends(b, ts, channel)
        await b.passes(200 / 50 * 60 + 60)
        assert b.sender.pending == 0
        assert {frozenset(b.chat.marks(channel, ts)) for channel, ts in asked} == {frozenset({DONE})}


async def test_reactions_keep_their_order_while_one_is_under_way() -> None:
    async with bench() as b:
        [ts] = said(b, 1)
        b.chat.hold("react")
        ask(b, ts, WORKING)
        await settle()
        ends(b, ts)
        await settle()
        b.chat.release("react")
        await settle()
        assert b.sender.pending == 0
        assert b.chat.marks(C, ts) == {DONE}


async def test_a_mark_that_may_have_been_set_before_is_taken_away() -> None:
    async with bench() as b:
        [ts] = said(b, 1)
        await b.chat.react(C, React(target=ts, mark=WORKING))
        ask(b, ts, WORKING, unsure=True)
        ask(b, ts, WORKING, remove=True)
        await b.passes(60)
        assert b.sender.pending == 0
        assert b.chat.marks(C, ts) == set()


async def test_after_a_restart_marks_are_repeated_without_a_look() -> None:
    async with bench() as b:
        [ts] = said(b, 1)
        for name in (WORKING, DONE):
            await b.chat.react(C, React(target=ts, mark=name))
        b.chat.calls.clear()
        ask(b, ts, QUEUED, unsure=True)
        ask(b, ts, WORKING, unsure=True)
        ask(b, ts, QUEUED, remove=True, unsure=True)
        ask(b, ts, DONE, unsure=True)
        ask(b, ts, WORKING, remove=True, unsure=True)
        await b.passes(10)
        assert b.sender.pending == 0
        assert b.chat.marks(C, ts) == {DONE}
        assert b.chat.calls == ["react"] * 3  # the final one once more, and the two removals


async def test_a_mark_waits_until_an_earlier_process_can_have_nothing_under_way() -> None:
    async with bench() as b:
        [ts] = said(b, 1)
        ask(b, ts, WORKING, remove=True, unsure=True)
        await b.passes(1.9)
        assert b.chat.calls == []
        await b.chat.react(C, React(target=ts, mark=WORKING))  # it was under way, and arrives
        await b.passes(5)
        assert b.chat.marks(C, ts) == set()


@pytest.mark.parametrize(
    "error",
    [
        ChatRateLimitedError(7),
        ChatUnreachableError("down"),
        ChatOutcomeUnknownError("time-out"),
        ChatAuthError("refused", "token_expired"),
    ],
)
async def test_trouble_delays_a_mark_and_loses_none(error: ChatError) -> None:
    async with bench() as b:
        [ts] = said(b, 1)
        await b.chat.react(C, React(target=ts, mark=WORKING))
        b.chat.fail_next("react", error, times=3)
        ask(b, ts, DONE, unsure=True)
        ask(b, ts, WORKING, remove=True, unsure=True)
        await b.passes(300)
        assert b.sender.pending == 0
        assert b.chat.marks(C, ts) == {DONE}


async def test_a_message_that_is_gone_takes_no_mark_and_says_so() -> None:
    async with bench() as b:
        [ts] = said(b, 1)
        b.chat.forget(ts)
        ends(b, ts)
        await b.passes(10)
        for task in b.tasks:
            with pytest.raises(ChatError, match="message_not_found"):
                await task
        assert b.sender.pending == 0


async def test_a_slow_answer_in_one_channel_does_not_hold_up_the_marks_of_another() -> None:
    async with bench() as b:
        [slow], [quick] = said(b, 1, "C1"), said(b, 1, "C2")
        b.chat.hold("react")
        ask(b, slow, DONE, channel="C1")
        await settle()
        held = b.chat._held.pop("react")
        ask(b, quick, DONE, channel="C2")
        await settle()
        assert b.chat.marks("C2", quick) == {DONE}
        held.set()
