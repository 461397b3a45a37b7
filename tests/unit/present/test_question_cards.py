"""The cards of questions: one choice, several, or one's own words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import pytest

from codebutler.chat.slack.render import SECTION_CHARS
from codebutler.domain.message import Message, Question, QuestionCard
from codebutler_worker.present.cards import LABEL_CHARS, MAX_OPTIONS, option, options_in
from tests.shown import blocks_of, text_of


def question(
    key: str,
    text: str,
    labels: Sequence[str] = (),
    details: Sequence[str] = (),
    *,
    several: bool = False,
    verdict: str = "",
) -> Question:
    found = enumerate(zip_longest(labels, details, fillvalue=""))
    options = tuple(option(label, at, detail, several=several) for at, (label, detail) in found)
    return Question(id=key, text=text, options=options[:MAX_OPTIONS], several=several, verdict=verdict)


def question_card(questions: Sequence[Question], ticked: tuple[str, ...] = ()) -> Message:
    return Message(card=QuestionCard(tuple(questions), ticked))


COLOUR = question("q1", "Which <colour>?", ("Red", "Blue"), ("warm", "calm"))
PARTS = question("q2", "Which parts?", ("Roof", "Walls", "Floor"), ("", "all four", ""), several=True)
SIZE = question("q3", "How big?")


def buttons(card: Message) -> list[tuple[str, str]]:
    """(label, value) of every button, row by row."""
    elements: list[Any] = [one for block in blocks_of(card) for one in block.get("elements", [])]
    return [(one["text"]["text"], one["value"]) for one in elements if one["type"] == "button"]


def sections(card: Message) -> list[str]:
    return [block["text"]["text"] for block in blocks_of(card) if block["type"] == "section"]


def boxes(card: Message) -> list[dict[str, Any]]:
    """Every group of boxes, with its row's block_id."""
    return [
        {**one, "block_id": block["block_id"]}
        for block in blocks_of(card)
        for one in block.get("elements", [])
        if one["type"] == "checkboxes"
    ]


def test_a_question_has_a_row_for_each_option_and_a_limit() -> None:
    options = tuple(f"option {n} " + "x" * 100 for n in range(30))
    card = question_card([question("id", "Which?", options)])
    rows = [block for block in blocks_of(card) if block["type"] == "actions"]
    assert [row["elements"][0]["value"] for row in rows] == [f"id:{n}" for n in range(MAX_OPTIONS)]
    assert all(len(row["elements"][0]["text"]["text"]) <= LABEL_CHARS for row in rows)


def test_what_explains_an_option_is_shown() -> None:
    card = question_card([COLOUR])
    assert "Which &lt;colour&gt;?" in text_of(card)
    assert "• *Red*: warm\n• *Blue*: calm" in text_of(card)
    assert "1 of" not in text_of(card)


def test_a_closed_question_has_no_buttons() -> None:
    closed = question_card([question("q1", "Which?", ("a", "b"), verdict="💬 Ana: a")])
    assert (text_of(closed), blocks_of(closed)) == ("🤔 Which?\n💬 Ana: a", ())


def test_several_may_be_ticked_and_are_sent_by_one_button() -> None:
    card = question_card([PARTS], ticked=("q2:2", "q1:0", "q2:9"))
    [group] = boxes(card)
    assert group["block_id"] == "q2"
    assert [one["value"] for one in group["options"]] == ["q2:0", "q2:1", "q2:2"]
    assert group["options"][1]["description"]["text"] == "all four"
    assert "description" not in group["options"][0]
    assert [one["value"] for one in group["initial_options"]] == ["q2:2"]
    assert buttons(card) == [("Done", "q2:ticked")]
    assert "initial_options" not in boxes(question_card([PARTS]))[0]


def test_questions_that_are_asked_together_are_counted_and_closed_one_by_one() -> None:
    card = question_card([COLOUR, PARTS, SIZE])
    assert [text.split(" 🤔")[0] for text in sections(card)] == ["*1 of 3*", "*2 of 3*", "*3 of 3*"]
    assert "Your message answers this question" in sections(card)[0]
    assert "What you write" not in sections(card)[1]
    answered = question("q1", "Which <colour>?", ("Red", "Blue"), verdict="💬 Ana: Red")
    card = question_card([answered, PARTS, SIZE])
    assert sections(card)[0].endswith("💬 Ana: Red")
    assert buttons(card) == [("Done", "q2:ticked")]
    assert "Your message answers this question" in sections(card)[1]


def test_a_card_of_four_long_questions_fits() -> None:
    long = "<" * 4_000
    many = [question(f"q{n}", long, (long,) * 10, (long,) * 10, several=bool(n % 2)) for n in range(4)]
    card = question_card(many)
    assert len(blocks_of(card)) <= 50
    assert len(text_of(card)) <= 3_900
    assert all(len(text) <= SECTION_CHARS for text in sections(card))
    assert all(len(one["text"]["text"]) <= 75 for group in boxes(card) for one in group["options"])
    assert all(len(one["description"]["text"]) <= 75 for group in boxes(card) for one in group["options"])


def test_the_options_of_a_question_are_the_list_it_ends_with() -> None:
    assert options_in("Which?\n- a\n* b\n3. c") == ("Which?", ("a", "b", "c"))
    assert options_in("Which?\n\n1) a\n2) b\n") == ("Which?", ("a", "b"))


@pytest.mark.parametrize(
    "body",
    [
        "Which?",
        "Which?\n- only one",
        "- a\n- b",
        "- a\n- b\nWhich?",
        "Which?\n- a\n- " + "long " * 20,
        "Which?\n- a\n- b\u202ec",
        "Which?" + "\n- a" * 11,
        "",
    ],
)
def test_other_texts_have_none(body: str) -> None:
    assert options_in(body) == (body, ())
