"""Making room: what matters is kept, results go first, and calls are never torn from their results."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codebutler_worker.agents.native.cleaning import (
    LOW,
    RECENT,
    SUMMARY_HEAD,
    TokenEstimate,
    cut_at,
    shrunk,
    summed_up,
    too_full,
)
from codebutler_worker.agents.native.loop import CUT
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from codebutler_worker.agents.native.sessions import mended
from codebutler_worker.tools.tool import PlanStep

CONTEXT = 10_000
HEAD: list[Message] = [SystemMessage("the orders"), UserMessage("the task")]


def step(number: int, size: int) -> list[Message]:
    call = ToolCall(f"c{number}", "look", "{}")
    return [AssistantMessage(f"step {number}", (call,)), ToolMessage(call.id, "x" * size)]


def work(steps: int, size: int) -> list[Message]:
    return HEAD + [message for number in range(steps) for message in step(number, size)]


def test_old_results_shrink_first_and_the_last_ones_stay() -> None:
    messages, gauge = work(12, 4000), TokenEstimate()
    assert too_full(messages, gauge, CONTEXT)
    found = shrunk(messages, gauge, CONTEXT)
    assert gauge.of(found) <= LOW * CONTEXT
    assert found[:2] == tuple(HEAD)
    assert found[-RECENT:] == tuple(messages[-RECENT:])
    assert "were let go to make room" in found[3].content
    assert len(found) == len(messages)


def test_no_more_is_shrunk_than_needed() -> None:
    messages, gauge = work(8, 4000), TokenEstimate()
    found = shrunk(messages, gauge, CONTEXT)
    shortened = [at for at, (old, new) in enumerate(zip(messages, found, strict=True)) if old != new]
    assert shortened == [3, 5, 7, 9]
    assert shrunk(HEAD, gauge, CONTEXT) == tuple(HEAD)


def test_a_summary_takes_the_place_of_the_beginning_and_keeps_what_is_pinned() -> None:
    messages = [*work(40, 300), UserMessage("and in blue")]
    messages += [message for number in range(40, 80) for message in step(number, 300)]
    gauge = TokenEstimate()
    at = cut_at(messages, gauge, CONTEXT)
    plan = (PlanStep("look", "done"), PlanStep("paint", "in_progress"))
    found = summed_up(messages, at, "it went well", plan)
    assert found[0] == HEAD[0]
    assert isinstance(found[1], UserMessage)
    for pinned in ("the task", SUMMARY_HEAD, "it went well", "and in blue", "2. [in_progress] paint"):
        assert pinned in found[1].content
    assert found[2:] == tuple(messages[at:])
    assert gauge.of(found) <= LOW * CONTEXT


def test_what_was_asked_stays_word_for_word_also_behind_a_nudge() -> None:
    # The turn's own task is older than what is kept whole; a nudge of ours and a person's word are not.
    messages = [
        *work(10, 300),
        AssistantMessage("done"),
        UserMessage("now paint it"),
        *work(60, 300)[2:],
        UserMessage(CUT),
        *step(99, 10),
    ]
    at = cut_at(messages, TokenEstimate(), CONTEXT)
    found = summed_up(messages, at, "it went well", (), asked="now paint it")
    assert "now paint it" in found[1].content
    assert summed_up(messages, at, "", (), asked="the task")[1].content.count("the task") == 1
    kept = [*messages, UserMessage("now paint it")]
    assert "now paint it" not in summed_up(kept, at, "it went well", (), asked="now paint it")[1].content


def test_a_second_summary_takes_the_place_of_the_first() -> None:
    gauge, plan = TokenEstimate(), (PlanStep("paint", "in_progress"),)
    first = work(80, 300)
    once = [*summed_up(first, cut_at(first, gauge, CONTEXT), "the first summary", plan), *work(80, 300)[2:]]
    twice = summed_up(once, cut_at(once, gauge, CONTEXT), "the second summary", plan)
    assert twice[1].content.count(SUMMARY_HEAD) == 1
    assert twice[1].content.count("[in_progress] paint") == 1
    assert "the first summary" not in twice[1].content
    assert twice[1].content.startswith("the task\n")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5000)), max_size=30), st.integers(1000, 50_000))
def test_no_result_is_torn_from_its_call(shape: list[tuple[int, int]], context: int) -> None:
    messages = list(HEAD)
    for number, (calls, size) in enumerate(shape):
        made = tuple(ToolCall(f"c{number}.{at}", "look", "{}") for at in range(calls))
        messages += [AssistantMessage("", made), *(ToolMessage(call.id, "x" * size) for call in made)]
    gauge = TokenEstimate()
    smaller = list(shrunk(messages, gauge, context))
    assert mended(smaller) == smaller
    summed = list(summed_up(smaller, cut_at(smaller, gauge, context), "s", ()))
    assert mended(summed) == summed
    assert summed[0] == HEAD[0]


def test_the_gauge_follows_what_the_service_counts() -> None:
    messages = work(10, 4000)
    gauge = TokenEstimate().counted(messages, 20_000)
    assert abs(gauge.of(messages) - 20_000) < 200
    assert TokenEstimate().counted(HEAD, 5000) == TokenEstimate()
    assert TokenEstimate().counted(messages, 0) == TokenEstimate()
