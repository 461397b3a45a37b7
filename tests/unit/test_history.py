"""The judge itself: it must find what it is there to find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codebutler.chat.slack.metadata import operation_metadata
from tests.history import Record, Said, check, overtaken

FIRST = Said("C1", "1.0", "1.0", "token-1")
SECOND = Said("C1", "2.0", "1.0", "token-2")


def asked(said: Said, *marks: str) -> dict[str, Any]:
    return {"ts": said.ts, "text": said.token, "reactions": [{"name": name} for name in marks]}


def answer(ts: str, text: str, op_id: str) -> dict[str, Any]:
    return {
        "ts": ts,
        "bot_id": "B1",
        "text": f"{text} _tokens: 1",
        "metadata": operation_metadata(op_id),
    }


def record(*thread: dict[str, Any], done: tuple[str, ...] = ("token-1", "token-2")) -> Record:
    return Record((FIRST, SECOND), {("C1", "1.0"): thread}, {"C1": done})


GOOD = (
    asked(FIRST, "white_check_mark"),
    asked(SECOND, "white_check_mark"),
    answer("3.0", "token-1", "a"),
    answer("4.0", "token-2", "b"),
)


def test_a_good_record_is_good() -> None:
    assert check(record(*GOOD)) == []


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        (record(asked(FIRST, "eyes"), *GOOD[1:]), "lost"),
        (record(asked(FIRST), *GOOD[1:]), "lost"),
        (record(asked(FIRST, "x", "white_check_mark"), *GOOD[1:]), "lost"),
        (record(*GOOD[:3]), "lost"),
        (record(asked(FIRST, "x"), *GOOD[1:]), "lost"),
        (record(*GOOD[1:]), "lost"),
        (record(*GOOD, answer("5.0", "token-1", "c")), "doubled"),
        (record(*GOOD, {**answer("5.0", "", "a"), "text": "progress"}), "doubled"),
        (record(*GOOD, done=("token-1", "token-2", "token-2")), "doubled"),
        (record(*GOOD, done=("token-2", "token-1")), "disordered"),
        (record(*GOOD[:2], answer("3.0", "token-2", "b"), answer("4.0", "token-1", "a")), "disordered"),
    ],
)
def test_what_is_wrong_is_found(bad: Record, kind: str) -> None:
    assert kind in {violation.kind for violation in check(bad)}


def test_what_a_person_continued_may_be_done_again_and_later() -> None:
    again = record(*GOOD, done=("token-2", "token-1", "token-1"))
    assert check(replace(again, continued={("C1", "1.0"): 1})) == []


def test_what_came_in_later_is_answered_later() -> None:
    swapped = record(*GOOD, done=("token-2", "token-1"))
    late = replace(swapped, came_in={("C1", "1.0"): 9, ("C1", "2.0"): 8})
    assert check(late) == []
    assert overtaken(late) == 1
    assert check(replace(swapped, came_in={("C1", "1.0"): 8, ("C1", "2.0"): 9})) != []


def test_one_answer_may_speak_of_several_messages() -> None:
    assert check(record(*GOOD[:2], answer("3.0", "token-1 token-2", "a"))) == []
