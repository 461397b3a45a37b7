"""Who is meant by what somebody types."""

from __future__ import annotations

import pytest

from codebutler.chat.people import Person
from codebutler.chat.slack.places import one_called, wanted_in
from codebutler.domain.errors import CodeButlerError

PEOPLE = [
    Person(id="U1", names=("Ada Lovelace", "ada")),
    Person(id="U2", names=("Adam", "adam")),
    Person(id="U3", names=("Bob Smith", "bobs")),
    Person(id="U6", names=("Mallory", "bob")),
    Person(id="U4", names=("Botty",), is_bot=True),
    Person(id="U5", names=("Carl",), is_deleted=True),
]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Ada Lovelace, bob", ["Ada Lovelace", "bob"]),
        ("U0123ABC U0456DEF", ["U0123ABC", "U0456DEF"]),
        ("a@b.com c@d.com; @eve", ["a@b.com c@d.com", "@eve"]),
        ("a@b.com c@d.com", ["a@b.com", "c@d.com"]),
        (" , ", []),
    ],
)
def test_a_line_names_people(text: str, wanted: list[str]) -> None:
    assert wanted_in(text) == wanted


@pytest.mark.parametrize(
    ("name", "user"), [("ADA", "U1"), ("ada lovelace", "U1"), ("bob s", "U3"), ("adam", "U2")]
)
def test_one_is_meant(name: str, user: str) -> None:
    assert one_called(name, PEOPLE).id == user


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ad", "several people are called ad"),
        ("bob", "several people are called bob: choose one by ID: Bob Smith .U3., Mallory .U6."),
        ("Carl", "nobody in Slack"),
        ("Botty", "nobody in Slack"),
    ],
)
def test_nobody_or_several(name: str, said: str) -> None:
    with pytest.raises(CodeButlerError, match=said):
        one_called(name, PEOPLE)
