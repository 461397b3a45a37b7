"""The one table of our words, and what is made from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from codebutler.slack.manifest import manifest
from codebutler.words import WORDS, as_table, misuse, nearest, usage_hint

CONTRACT = {
    *("help", "ping", "status", "list", "new", "continue", "reset", "stop", "kill", "output", "c", "logs"),
    *("jobs", "memory", "skills", "agents", "diff", "undo", "checks"),
}


def test_every_word_of_the_contract_is_there() -> None:
    assert set(WORDS) >= CONTRACT


@pytest.mark.parametrize(
    ("word", "argument", "taken"),
    [
        ("help", "", True),
        ("help", "!undo", True),
        ("help", "me please", False),
        ("ping", "", True),
        ("ping", "pong", False),
        ("stop", "ALL", True),
        ("stop", "everything", False),
        ("c", "", False),
        ("c", "make test\nmake lint", True),
        ("logs", "", True),
        ("logs", "tail 20", True),
        ("logs", "tail", True),
        ("logs", "tail x y", False),
        ("logs", "../../etc/passwd", False),
        ("diff", "turn", True),
        ("diff", "--output=/tmp/x", False),
        ("undo", "all", False),
    ],
)
def test_a_word_knows_what_may_follow_it(word: str, argument: str, taken: bool) -> None:
    assert WORDS[word].takes(argument) is taken


@pytest.mark.parametrize("word", WORDS.values(), ids=lambda word: word.name)
def test_a_wrong_argument_is_answered_with_one_line_that_shows_the_right_one(word: object) -> None:
    line = misuse(word)  # type: ignore[arg-type]  # one of the table's
    assert "\n" not in line
    assert f"`{word.example}`" in line  # type: ignore[attr-defined]  # a word with an example


@pytest.mark.parametrize(
    ("typed", "meant"), [("stauts", "status"), ("sto", "stop"), ("HLEP", "help"), ("qqqqq", None), ("", None)]
)
def test_a_misspelt_word_finds_its_neighbour(typed: str, meant: str | None) -> None:
    assert nearest(typed) == meant


def test_the_slack_app_shows_the_words_within_slacks_limits() -> None:
    (command,) = manifest()["features"]["slash_commands"]
    assert command["command"] == "/butler"
    assert command["usage_hint"] == usage_hint()
    assert len(usage_hint()) <= 1000
    assert len(command["description"]) <= 2000
    assert "!word" in command["description"]


def test_the_reference_page_has_the_table_as_it_is() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "chat.md"
    assert as_table() in page.read_text(), f"put codebutler.words.as_table() into {page}:\n{as_table()}"
