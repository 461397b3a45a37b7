"""What of an agent's words is its answer."""

from __future__ import annotations

import pytest

from codebutler_worker.agents.answer import STOPS_HERE, AnswerText


def test_work_begins_it_anew_and_what_was_said_before_stands_until_then() -> None:
    answer = AnswerText().with_text("I look.").called("Bash")
    assert answer.text == "I look."
    assert answer.with_text("Found it.").text == "Found it."


@pytest.mark.parametrize("tool", ["TodoWrite", "todowrite", "TodoList", "AskUserQuestion", "update_subgoal"])
def test_plans_and_questions_cut_nothing_off(tool: str) -> None:
    assert (
        AnswerText().with_text("Found it.\n").called(tool).with_text("\nThat is all.").text
        == "Found it.\n\nThat is all."
    )


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        ("half a sen", "tence.", "half a sentence."),
        ("one ", "two", "one two"),
        (
            "- the first line\n- the second li",
            "- the second line\n- a third",
            "- the first line\n- the second line\n- a third",
        ),
        ("aaaa", "aaaa", "aaaaaaaa"),
    ],
)
def test_what_was_cut_is_one_text(first: str, second: str, whole: str) -> None:
    cut = AnswerText().with_text(first).cut()
    assert cut.text == f"{first.strip()}\n\n{STOPS_HERE}"
    assert cut.with_text(second).text == whole


def test_nothing_says_nothing() -> None:
    assert AnswerText().with_text(" \n").cut().text == ""
    assert AnswerText().with_text("x").called("Bash").cut().with_text("y").text == "y"
