"""Envelopes are found whole, in pieces of any size, and nothing else is touched."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.text.envelopes import (
    MAX_BODY_CHARS,
    Envelope,
    EnvelopeParser,
    Part,
    Prose,
    parts_of,
    prose_of,
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
        "<<<SLACK:>>> x",
        "<<<SLACK file>>> x",
        "<<<END_SLACK>>>",
        "a << b <<< c",
        "<<<SLACK:" + "x" * 50 + ">>> y",
    ],
)
def test_what_is_no_envelope_stays_prose(text: str) -> None:
    parts = joined(parts_of(text))
    assert parts == ([Prose(text)] if text else [])


@pytest.mark.parametrize(
    ("text", "envelope"),
    [
        ("<<<SLACK>>>hi<<<END_SLACK>>>", Envelope("", "hi")),
        ("<<<slack:Done>>>hi<<<End_Slack>>>", Envelope("done", "hi")),
        ("<<<Slack:QUESTION>>>\n a\n b \n<<<END_SLACK>>>", Envelope("question", "a\n b")),
        ("<<<SLACK:done>>>never closed", Envelope("done", "never closed", complete=False)),
        ("<<<SLACK>>>a <<< b > c<<<END_SLACK>>>", Envelope("", "a <<< b > c")),
        ("<<<<SLACK>>>x<<<<END_SLACK>>>", Envelope("", "x<")),
    ],
)
def test_forms_of_an_envelope(text: str, envelope: Envelope) -> None:
    assert [part for part in parts_of(text) if isinstance(part, Envelope)] == [envelope]


def test_the_next_opening_ends_an_envelope_that_was_not_closed() -> None:
    assert parts_of("<<<SLACK:progress>>>one<<<SLACK:done>>>two<<<END_SLACK>>>") == [
        Envelope("progress", "one", complete=False),
        Envelope("done", "two"),
    ]


def test_prose_does_not_wait_for_more() -> None:
    assert EnvelopeParser().feed("all of this is certain") == [Prose("all of this is certain")]


def test_an_envelope_that_stays_open_for_too_long_is_given_as_incomplete() -> None:
    parser = EnvelopeParser(unclosed_s=30)
    assert parser.feed("<<<SLACK:warning>>>half", 100.0) == []
    assert parser.overdue(129.0) == []
    assert parser.overdue(130.0) == [Envelope("warning", "half", complete=False)]
    assert parser.feed(" the rest<<<END_SLACK>>>", 131.0) == [Prose(" the rest<<<END_SLACK>>>")]


def test_an_envelope_that_grows_too_long_is_given_as_incomplete() -> None:
    parser = EnvelopeParser()
    assert parser.feed("<<<SLACK>>>") == []
    parts = [part for _ in range(11) for part in parser.feed("x" * (MAX_BODY_CHARS // 10))]
    assert parts == [Envelope("", "x" * MAX_BODY_CHARS, complete=False)]


def test_the_prose_is_what_is_left_without_the_envelopes() -> None:
    text = "One.\n\n<<<SLACK:file>>> a <<<END_SLACK>>>\n\nTwo. <<<SLACK:done>>> b <<<END_SLACK>>>"
    assert prose_of(parts_of(text)) == "One.\n\nTwo."


MARKERS = [
    "<<<SLACK>>>",
    "<<<slack:done>>>",
    "<<<END_SLACK>>>",
    "<<<",
    "<",
    ">",
    ">>>",
    "SLACK",
    ":x",
    "text ",
    "\n",
]


@given(st.lists(st.sampled_from(MARKERS), max_size=30), st.randoms(use_true_random=False))
def test_random_pieces_of_markers_come_out_the_same_in_any_pieces(pieces: list[str], random: Random) -> None:
    text = "".join(pieces)
    parser = EnvelopeParser()
    found: list[Part] = []
    at = 0
    while at < len(text):
        size = random.randint(1, 9)
        found += parser.feed(text[at : at + size])
        at += size
    assert joined([*found, *parser.close()]) == joined(parts_of(text))
