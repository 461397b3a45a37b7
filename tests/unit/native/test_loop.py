"""The loop's decisions, over every history of answers and results."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from codebutler_worker.agents.native.loop import (
    CUT,
    CUT_TEXT,
    MOST_ERRORS,
    MOST_PARTS,
    AskModel,
    Leave,
    LoopLimits,
    Progress,
    RunCall,
    acted,
    ended,
    repeats,
    replied,
    signature,
    steered,
    step,
    stopped,
)
from codebutler_worker.agents.native.model import AssistantMessage, ModelReply, TokenCount, ToolCall

LIMITS = LoopLimits(most_turns=5)


def answer(text: str = "", *calls: str, cut: bool = False, tokens: int = 10) -> ModelReply:
    made = tuple(ToolCall(f"c{at}", name, f'{{"n": {at}}}') for at, name in enumerate(calls))
    return ModelReply(AssistantMessage(text, made), TokenCount(tokens, 0), cut=cut)


def after(*replies: ModelReply, valid: bool = True, again: bool = False) -> Progress:
    progress = Progress()
    for reply in replies:
        progress = replied(progress, reply, 0.01)
        while progress.open:
            progress = acted(progress, "it came to this", valid=valid, again=again)
    return progress


def calling(*names: str, result: str = "as before", progress: Progress | None = None) -> Progress:
    """After answers with one call each."""
    progress = progress or Progress()
    for name in names:
        progress = acted(replied(progress, answer("", name), 0.0), result)
    return progress


def begun(progress: Progress, name: str) -> bool:
    """Whether a call of that name is done next."""
    return isinstance(step(replied(progress, answer("", name), 0.0), LIMITS), RunCall)


def test_it_asks_acts_on_every_call_and_asks_again() -> None:
    assert step(Progress(), LIMITS) == AskModel()
    progress = replied(Progress(), answer("I look.", "one", "two"), None)
    assert step(progress, LIMITS) == RunCall(ToolCall("c0", "one", '{"n": 0}'))
    progress = acted(progress, "fine")
    assert step(progress, LIMITS) == RunCall(ToolCall("c1", "two", '{"n": 1}'))
    assert step(acted(progress, "fine"), LIMITS) == AskModel()


def test_an_answer_without_calls_is_the_end() -> None:
    progress = after(answer("First.", "one"), answer("Done."))
    assert step(progress, LIMITS) == Leave("done")
    assert (progress.answer, progress.turns, progress.tokens) == ("Done.", 2, TokenCount(20, 0))


def test_it_ends_at_the_limit_of_answers() -> None:
    progress = after(*(answer("", f"tool{at}") for at in range(5)))
    assert step(progress, LIMITS) == Leave("max_turns")
    for without in (LoopLimits(), LoopLimits(most_turns=0)):
        assert step(after(*(answer("", f"tool{at}") for at in range(500))), without) == AskModel()


def test_of_the_same_call_the_second_is_warned_of_and_the_third_not_done() -> None:
    once = calling("one")
    assert not repeats(once)
    assert begun(once, "one")
    twice = calling("one", progress=once, result="another time")
    assert repeats(twice)
    third = replied(twice, ModelReply(AssistantMessage("", (ToolCall("x", "one", '{ "n":0}'),))), 0.0)
    assert step(third, LIMITS) == Leave("repeated_call", third.open)


def test_another_call_in_between_a_person_or_a_call_that_asks_on_makes_it_fine() -> None:
    for progress in (
        calling("one", "one", "two"),
        calling("one", "two", "one"),
        steered(calling("one", "one")),
        after(answer("", "one"), answer("", "one"), again=True),
    ):
        assert not repeats(progress)
        assert begun(progress, "one")


def test_a_round_of_calls_that_always_comes_to_the_same_is_not_begun_a_third_time() -> None:
    for names in (("one", "two"), ("one", "two", "three"), ("one", "one", "two", "three")):
        progress = calling(*names, *names)
        assert repeats(progress)
        assert not begun(progress, names[0])
        assert begun(progress, "other")
    # What is waited for comes in the end.
    waiting = calling("look", "sleep", result="not yet")
    assert begun(calling("look", "sleep", progress=waiting, result="nearly"), "look")


def test_three_answers_in_a_row_that_are_none_end_it() -> None:
    failing = [answer("", f"bad{at}", "worse") for at in range(MOST_ERRORS)]
    assert step(after(*failing[:-1], valid=False), LIMITS) == AskModel()
    progress = after(*failing, valid=False)
    assert step(progress, LIMITS) == Leave("errors")
    assert progress.last_error == "it came to this"


def test_a_tool_that_fails_is_a_result_like_any_other() -> None:
    progress = after(*(answer("", f"fails{at}") for at in range(4)))
    assert (progress.errors, step(progress, LIMITS)) == (0, AskModel())


def test_one_call_of_several_that_is_understood_is_no_error() -> None:
    progress = replied(after(answer("", "a"), answer("", "b"), valid=False), answer("", "c", "d"), 0.0)
    progress = acted(acted(progress, "done"), "what?", valid=False)
    assert progress.errors == 0


@pytest.mark.parametrize("reply", [answer(cut=True), answer(" "), answer("")])
def test_an_answer_that_is_none_is_asked_for_again_until_it_is_an_error(reply: ModelReply) -> None:
    progress = after(reply)
    found = step(progress, LIMITS)
    assert isinstance(found, AskModel)
    assert found.nudge
    assert step(after(reply, reply, reply), LIMITS) == Leave("errors")


def test_words_that_were_cut_off_are_gone_on_with_and_are_one_answer() -> None:
    progress = after(
        answer("", "read_files"), *(answer(part, cut=True) for part in ("One, ", "two, th", "ree"))
    )
    assert step(progress, LoopLimits(most_turns=9)) == AskModel(CUT_TEXT)
    progress = replied(progress, answer(", four."), 0.0)
    assert step(progress, LoopLimits(most_turns=9)) == Leave("done")
    assert progress.answer == "One, two, three, four."


def test_an_answer_without_end_is_given_as_far_as_it_came() -> None:
    progress = after(*(answer(f"part {at} ", cut=True) for at in range(MOST_PARTS)))
    assert step(progress, LoopLimits(most_turns=99)) == Leave("done")
    assert progress.answer.startswith("part 0 part 1 ")
    assert "The answer stops here" in progress.answer


def test_a_call_that_was_cut_off_is_asked_for_in_smaller_steps() -> None:
    reply = replace(answer("I write it.", cut=True), lost_call=True)
    assert step(after(reply), LIMITS) == AskModel(CUT)
    assert step(after(reply, reply, reply), LIMITS) == Leave("errors")


def test_the_answer_is_all_that_was_said_since_the_last_work() -> None:
    progress = after(
        answer("I look.", "run_terminal_command"),
        answer("It is the cache.", "update_subgoal"),
        answer("Two lines must go.", "add_subgoal", "remember"),
    )
    progress = ended(replied(progress, answer("", "end_turn"), 0.0), "That is all.", needs_user=False)
    assert progress.answer == "It is the cache.\n\nTwo lines must go.\n\nThat is all."
    assert ended(progress, "That is all.", needs_user=False).answer == progress.answer


def test_what_was_cut_off_is_said_once_the_rest_is_done() -> None:
    progress = replied(Progress(), answer("", "one", cut=True), 0.0)
    assert isinstance(step(progress, LIMITS), RunCall)
    assert step(acted(progress, "fine"), LIMITS) == AskModel(CUT)
    assert step(after(answer("", "one", cut=True), answer("", "two")), LIMITS) == AskModel()


def test_it_ends_when_the_money_or_the_tokens_are_spent_but_not_before_what_was_called_is_done() -> None:
    for limits in (LoopLimits(most_turns=9, most_usd=0.02), LoopLimits(most_turns=9, most_tokens=20)):
        assert step(after(answer("", "a")), limits) == AskModel()
        assert step(after(answer("", "a"), answer("", "b")), limits) == Leave("budget")
        waiting = replied(after(answer("", "a")), answer("", "b"), 0.01)
        assert isinstance(step(waiting, limits), RunCall)
        assert step(after(answer("", "a"), answer("Done.")), limits) == Leave("done")


def test_an_unknown_price_is_never_taken_for_nothing() -> None:
    progress = replied(replied(Progress(), answer("", "a"), 0.5), answer(""), None)
    assert progress.cost_usd is None


def test_the_model_or_a_person_may_end_it_and_open_calls_are_named() -> None:
    progress = replied(Progress(), answer("", "one", "two"), 0.0)
    assert step(stopped(progress), LIMITS) == Leave("stopped", progress.open)
    assert step(ended(progress, "Which one?", needs_user=True), LIMITS) == Leave("needs_user", progress.open)
    assert ended(progress, "All done.", needs_user=False).answer == "All done."


NAMES = st.sampled_from(["a", "b", "c"])
REPLIES = st.builds(
    lambda text, names, cut: answer(text, *names, cut=cut),
    st.sampled_from(["", "words"]),
    st.lists(NAMES, max_size=3),
    st.booleans(),
)


@given(st.lists(st.tuples(REPLIES, st.booleans(), st.booleans()), max_size=30), st.integers(1, 8))
def test_every_history_ends_and_nothing_is_done_three_times_or_left_out(
    history: list[tuple[ModelReply, bool, bool]], most: int
) -> None:
    limits, progress = LoopLimits(most_turns=most), Progress()
    done: list[str] = []
    asked = 0
    for reply, valid, again in history:
        found = step(progress, limits)
        if isinstance(found, Leave):
            break
        assert isinstance(found, AskModel)
        asked += 1
        progress = replied(progress, reply, 0.0)
        expected = list(reply.said.calls)
        while isinstance(found := step(progress, limits), RunCall):
            assert found.call == expected.pop(0)
            done.append(signature(found.call))
            assert again or len(set(done[-3:])) > 1 or len(done) < 3
            progress = acted(progress, "the same", valid=valid, again=again)
            if again:
                done.clear()
        if isinstance(found, Leave):
            assert tuple(expected) == found.unanswered
    assert asked <= most
    assert progress.errors <= MOST_ERRORS
