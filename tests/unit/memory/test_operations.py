"""Operations on the memory's text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.memory import (
    MAX_FACTS,
    MAX_LINE_CHARS,
    MAX_TEXT_CHARS,
    ApplyResult,
    FactChange,
    apply_changes,
    clean_fact,
    facts_of,
    is_full,
)

OWN = "# Our notes\n\nWritten by hand.\n\n- Login uses bcrypt\n* Deploy on Tuesdays\n"


def test_a_new_fact_comes_at_the_end_and_the_rest_stays() -> None:
    applied = apply_changes([FactChange(new="- Time is UTC")], OWN)
    assert applied == ApplyResult(OWN + "- Time is UTC\n", (FactChange(new="Time is UTC"),))


def test_a_fact_is_rewritten_in_its_place() -> None:
    applied = apply_changes([FactChange("Login uses bcrypt", "Login and reset use bcrypt")], OWN)
    assert applied.text == OWN.replace("Login uses bcrypt", "Login and reset use bcrypt")
    assert applied.applied == (FactChange("Login uses bcrypt", "Login and reset use bcrypt"),)


def test_a_fact_is_taken_away() -> None:
    assert facts_of(apply_changes([FactChange("Deploy on Tuesdays")], OWN).text) == ("Login uses bcrypt",)


def test_what_does_not_fit_is_refused_and_the_text_untouched() -> None:
    applied = apply_changes(
        [
            FactChange("no such fact", "x"),
            FactChange("Written by hand.", "x"),  # not a fact: the people's own words
            FactChange(new="Login uses bcrypt"),
            FactChange(new=" \n"),
            FactChange(),
            FactChange("Login uses bcrypt", "Login uses bcrypt"),
        ],
        OWN,
    )
    assert applied.text == OWN
    assert applied.applied == ()
    assert [why for _, why in applied.refused] == ["unknown", "unknown", "known", "empty", "empty", "known"]


def test_the_first_memory_needs_no_file() -> None:
    assert apply_changes([FactChange(new="a"), FactChange(new="b")], "").text == "- a\n- b\n"


def test_a_full_memory_takes_nothing_more_but_may_shrink() -> None:
    full = "".join(f"- fact {at}\n" for at in range(MAX_FACTS))
    assert is_full(full)
    assert apply_changes([FactChange(new="one more")], full).refused == (
        (FactChange(new="one more"), "full"),
    )
    assert apply_changes([FactChange("fact 1"), FactChange(new="one more")], full).applied == (
        FactChange("fact 1"),
        FactChange(new="one more"),
    )


def test_a_line_of_the_people_that_is_too_long_does_not_grow() -> None:
    text = "x" * (MAX_TEXT_CHARS - 10) + "\n- a\n"
    assert apply_changes([FactChange("a", "a" * 100)], text).refused[0][1] == "full"


def test_what_was_done_can_be_undone() -> None:
    changes = (FactChange(new="Time is UTC"), FactChange("Login uses bcrypt", "Login uses argon2"))
    after = apply_changes(changes, OWN)
    back = apply_changes([change.inverse for change in reversed(after.applied)], after.text)
    assert back.text == OWN


words = st.text(min_size=0, max_size=40)
changes = st.lists(st.builds(FactChange, words, words), max_size=20)


@given(changes, st.lists(words, max_size=10))
def test_whatever_is_asked_the_text_stays_bounded_lines_of_facts(
    asked: list[FactChange], there: list[str]
) -> None:
    text = "".join(f"- {fact}\n" for word in there if (fact := clean_fact(word)))
    applied = apply_changes(asked, text)
    assert len(applied.applied) + len(applied.refused) == len(asked)
    for line in applied.text.splitlines():
        assert line.startswith("- ")
        assert len(line) <= MAX_LINE_CHARS + 2
    assert len(applied.text) <= max(MAX_TEXT_CHARS, len(text))


@given(st.lists(st.builds(FactChange, st.just(""), words), max_size=20))
def test_what_is_there_is_not_added_again(asked: list[FactChange]) -> None:
    once = apply_changes(asked, "")
    assert apply_changes(asked, once.text).applied == ()


def test_what_people_wrote_comes_back_as_it_was() -> None:
    assert apply_changes([FactChange(new="`make` <all>")], "", verbatim=True).text == "- `make` <all>\n"
    assert apply_changes([FactChange(new="`make` <all>")], "").text == "- 'make' ‹all›\n"
    assert apply_changes([FactChange(new="two\nlines")], "", verbatim=True).text == "- two lines\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_lines_of_the_people_keep_their_ends_and_odd_characters(end: str) -> None:
    theirs = f"# Ours{end}a\x0cb\u2028c{end}- old{end}"
    changed = apply_changes([FactChange("old", "newer"), FactChange(new="more")], theirs)
    assert changed.text == f"# Ours{end}a\x0cb\u2028c{end}- newer{end}- more{end}"
    assert facts_of(changed.text) == ("newer", "more")
