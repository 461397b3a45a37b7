"""The judge itself: it must find what it is there to find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codebutler.chat.slack.answers import operation_metadata
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


LONG = replace(FIRST, token="token-10", lines=("line-10/1", "line-10/2"))
IN_FILE = "+token-10\nline-10/1\n_Full answer attached._"


def alone(said: Said, *thread: dict[str, Any], there: tuple[str, ...] = ()) -> Record:
    whole = "+token-10\nline-10/1\nline-10/2"
    files = {"F1": whole, "F2": whole, "F3": "+token-11\n"}
    threads = {("C1", "1.0"): (asked(said, "white_check_mark"), *thread)}
    return Record((said,), threads, files=files, there={"C1": there})


def part(ts: str, text: str, *files: str) -> dict[str, Any]:
    return {"ts": ts, "bot_id": "B1", "text": text, "files": [{"id": file} for file in files]}


def kinds(of: Record) -> list[str]:
    return [violation.kind for violation in check(of)]


def test_an_answer_in_several_posts_is_whole() -> None:
    first, last = part("2.0", "Added:\n+token-10\nline-10/1"), answer("3.0", "line-10/2", "a")
    assert kinds(alone(LONG, first, last)) == []
    assert kinds(alone(LONG, first)) == ["lost"]
    assert kinds(alone(LONG, last)) == ["lost"]
    assert kinds(alone(LONG, first, last, part("4.0", "line-10/2"))) == ["doubled"]


def test_an_answer_in_a_file_has_one_of_its_own() -> None:
    head = answer("2.0", IN_FILE, "a")
    assert kinds(alone(LONG, head, part("3.0", "", "F1"))) == []
    assert kinds(alone(LONG, head)) == ["lost", "credited", "credited"]
    assert kinds(alone(LONG, head, part("3.0", "", "F3"))) == ["lost", "credited"]
    twice = alone(LONG, head, part("3.0", "", "F1"), part("4.0", "", "F2"))
    assert set(kinds(twice)) == {"doubled", "credited"}


def test_of_an_edited_message_one_text_is_carried_out() -> None:
    edited = replace(FIRST, instead="token-9")
    old, new = answer("2.0", "token-1", "a"), answer("3.0", "token-9", "b")
    assert kinds(alone(edited, old)) == kinds(alone(edited, new)) == []
    assert kinds(alone(edited, old, new)) == ["doubled"]
    both = replace(alone(edited, old), done={"C1": ("token-1", "token-9")})
    assert kinds(both) == ["doubled"]


def test_a_timer_speaks_once_and_is_answered() -> None:
    timer = replace(FIRST, is_timer=True)
    spoken = {**part("2.0", "⏰ append `token-1` to x"), "reactions": [{"name": "white_check_mark"}]}
    told = answer("3.0", "token-1", "a")
    assert kinds(alone(timer, spoken, told)) == []
    assert kinds(alone(timer)) == ["lost"]
    assert kinds(alone(timer, spoken)) == ["lost"]
    assert kinds(alone(timer, spoken, {**spoken, "ts": "2.5"}, told)) == ["doubled"]


def test_what_was_decided_about_a_file_is_done() -> None:
    told = answer("2.0", "token-1", "a")
    assert kinds(alone(replace(FIRST, gone="old"), told)) == []
    assert kinds(alone(replace(FIRST, gone="old"), told, there=("old",))) == ["lost"]
    assert kinds(alone(replace(FIRST, kept="old"), told)) == ["lost"]
    assert kinds(alone(replace(FIRST, kept="old"), told, there=("old",))) == []
