"""What is streamed of prose that grows."""

from __future__ import annotations

from random import Random

import pytest

from codebutler.chat.delivery.streams import MOST_CHARS, Growth, more


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("", ""),
        ("Hel", ""),
        ("Hello wor", "Hello"),
        ("Hello world ", "Hello world"),
        ("  \n One", ""),
        ("One\n\n- tw", "One\n\n-"),
    ],
)
def test_the_last_word_waits_until_it_is_whole(written: str, shown: str) -> None:
    assert Growth().writing(written).text == shown


def test_a_whole_block_stands_before_the_next_one() -> None:
    growth = Growth().writing("I look at").written("I look at it.")
    assert growth.text == "I look at it."
    assert growth.writing("It is fine, I thi").text == "I look at it.\n\nIt is fine, I"


def test_what_grows_is_only_ever_added_to() -> None:
    rng = Random(5)
    words = ["one", "two", "`three`", "**four**\n\n", "five,", "six.", "\n"]
    for _ in range(50):
        text = " ".join(rng.choice(words) for _ in range(200))
        growth, shown = Growth(), ""
        for end in sorted(rng.randrange(len(text)) for _ in range(30)):
            rest = more(shown, growth.writing(text[:end]).text)
            assert rest is not None
            shown += rest
        assert more(shown, growth.written(text).text) is not None


def test_a_block_that_begins_anew_cannot_be_added() -> None:
    assert more("Hello world", Growth().writing("Good morning to you").text) is None


def test_no_more_than_a_message_takes() -> None:
    growth = Growth().writing("word " * 5_000)
    assert MOST_CHARS - 10 < len(growth.text) <= MOST_CHARS
    assert more(growth.text, growth.written("word " * 6_000).text) == ""
