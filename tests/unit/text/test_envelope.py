"""Envelopes are found whole, in pieces of any size, and nothing else is touched."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.text.envelope import (
    MAX_BODY_CHARS,
    Envelope,
    EnvelopeParser,
    Part,
    Prose,
    parts_of,
    without,
)

SENT = "Here: <<<SLACK:file>>> out/a b.csv <<<END_SLACK>>> and <<<SLACK:done>>>ready<<<END_SLACK>>>!"


def joined(parts: list[Part]) -> list[Part]:
    """Prose that came in pieces as one."""
    whole: list[Part] = []
    for part in parts:
        if isinstance(part, Prose) and whole and isinstance(whole[-1], Prose):
            whole[-1] = Prose(whole[-1].text + part.text)
        else:
            whole.append(part)
    return whole


def test_a_text_is_taken_apart() -> None:
    assert parts_of(SENT) == [
        Prose("Here: "),
        Envelope("file", "out/a b.csv"),
        Prose(" and "),
        Envelope("done", "ready"),
        Prose("!"),
    ]


@given(st.lists(st.integers(0, len(SENT)), max_size=12))
def test_it_does_not_matter_where_the_text_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(SENT)]
    parser = EnvelopeParser()
    found: list[Part] = []
    for start, end in pairwise(edges):
        found += parser.feed(SENT[start:end])
    assert joined([*found, *parser.close()]) == parts_of(SENT)


@given(
    st.lists(
        st.sampled_from(["<", "<<<", "<<<SLACK:", "file", ">>>", "<<<END_SLACK>>>", "a", "\n"]), max_size=30
    )
)
def test_any_text_comes_out_the_same_in_one_piece_or_by_characters(pieces: list[str]) -> None:
    text = "".join(pieces)
    parser = EnvelopeParser()
    by_character = [part for character in text for part in parser.feed(character)]
    assert joined([*by_character, *parser.close()]) == joined(parts_of(text))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "<<<SLACK:file>>> never closed",
        "<<<SLACK:File>>> x <<<END_SLACK>>>",
        "<<<SLACK:>>> x <<<END_SLACK>>>",
        "<<<END_SLACK>>>",
        "a << b <<< c",
        "<<<SLACK:" + "x" * 50 + ">>> y <<<END_SLACK>>>",
    ],
)
def test_what_is_no_envelope_stays_prose(text: str) -> None:
    parts = joined(parts_of(text))
    assert parts == ([Prose(text)] if text else [])


def test_prose_does_not_wait_for_more() -> None:
    assert EnvelopeParser().feed("all of this is certain") == [Prose("all of this is certain")]


def test_an_envelope_that_grows_too_long_is_prose() -> None:
    text = "<<<SLACK:file>>>" + "x" * (MAX_BODY_CHARS + 1)
    parser = EnvelopeParser()
    assert joined(parser.feed(text)) == [Prose(text)]


def test_one_type_is_taken_out_and_the_rest_stays() -> None:
    text = "One.\n\n<<<SLACK:file>>> a <<<END_SLACK>>>\n\nTwo. <<<SLACK:done>>> b <<<END_SLACK>>>"
    assert without(parts_of(text), "file") == "One.\n\nTwo. <<<SLACK:done>>> b <<<END_SLACK>>>"
