"""The one table of our words, and what is made from it."""

from __future__ import annotations

import inspect
import re
from datetime import UTC, datetime

import pytest

from codebutler.chat.slack.app import manifest
from codebutler.config.permission import ACTIONS
from codebutler.config.schema import Config
from codebutler.domain.command_help import completions, nearest, usage_error, usage_hint
from codebutler.domain.commands import ALIASES, ALL, DIRECT, WORDS, word_of
from codebutler.domain.word import Word
from codebutler.intake.repos import Repo
from codebutler.parent.commands import asked as parent
from codebutler.parent.commands.asked import AskedDirectly
from codebutler_worker.commands import table as worker
from tests.unit.docs.written import ARCHITECTURE, COMMANDS, MAC, written

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
    line = usage_error(word)  # type: ignore[arg-type]  # one of the table's
    assert "\n" not in line
    assert f"`{word.example}`" in line  # type: ignore[attr-defined]  # a word with an example


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("stauts", "status"),
        ("modle", "model"),
        ("sto", "stop"),
        ("HLEP", "help"),
        ("qqqqq", None),
        ("", None),
    ],
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
    for page in (COMMANDS, MAC, ARCHITECTURE):
        assert written(page) == page.read_text(), "run `make docs`"


def test_no_two_words_have_a_name_or_an_alias_in_common() -> None:
    names = [name for word in ALL for name in (word.name, *word.aliases)]
    assert len(set(names)) == len(names) == len(WORDS) + len(ALIASES)
    assert [name for name, _ in completions()] == names


def test_an_alias_means_its_word_and_is_told_with_it() -> None:
    for alias, name in ALIASES.items():
        word = word_of(alias)
        assert word is not None
        assert word.name == name
        assert f"`!{alias}`" in word.about


@pytest.mark.parametrize("word", ALL, ids=lambda word: word.name)
def test_every_word_is_somebodys_to_do(word: Word) -> None:
    """A handler in one of the processes; or it is an agent's prompt."""
    assert word.done_by or word.prefix
    assert word.may in ACTIONS
    if word.runs == "parent":
        assert inspect.iscoroutinefunction(parent.handler_of(word))
    else:
        assert callable(worker.handler_of(word)) is bool(word.done_by)


def test_the_reference_page_lists_what_direct_messages_answer() -> None:
    page = COMMANDS.read_text().partition("| you write, outside threads | what happens |\n|---|---|\n")[2]
    assert re.findall(r"^\| `(\w+)` \|", page.partition("\n\n")[0], re.MULTILINE) == list(DIRECT)


def test_what_is_answered_in_direct_messages_takes_no_argument_there() -> None:
    mine = AskedDirectly({"C1": Repo("shop", Config())}, (), datetime(2026, 1, 1, tzinfo=UTC))
    for name, word in DIRECT.items():
        assert word.takes("")
        assert parent.direct_answer(name, mine)
