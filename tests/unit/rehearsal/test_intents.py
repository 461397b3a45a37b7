"""The sentences the rehearsal agent understands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.web.dashboard.changes import LineComment, review_message
from codebutler_worker.agents.rehearsal.language import (
    Intent,
    is_inside,
    understand,
)
from codebutler_worker.conversation.history import Missed
from codebutler_worker.conversation.prepare import BegunTurn, PromptMessage, prompt_of
from codebutler_worker.store.rows import TurnRow


def prompt(said: PromptMessage, reason: str | None = None, answered: tuple[tuple[str, str], ...] = ()) -> str:
    turn = TurnRow(
        id="turn", conversation="C:1", channel_id="C", thread="1", agent="rehearsal", created_at="",
        reason=reason, session_id="s",
    )  # fmt: skip
    begun = BegunTurn(turn, (said,), (), None, 0.0, "", None, Missed(), answered=answered)
    return prompt_of(begun, (), Path("/r"))


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("list the files", Intent("List")),
        ("Please list all files in src.", Intent("List", "src")),
        ("@U1 what files are there?", Intent("List")),
        ("ls", Intent("List")),
        ("ls src/", Intent("List", "src/")),
        ("read README.md", Intent("Read", "README.md")),
        ("show me the file `src/app.py`", Intent("Read", "src/app.py")),
        ("cat 'a b.txt'", Intent("Read", "a b.txt")),
        ("search for TODO", Intent("Search", text="TODO")),
        ('search for "def main" in src', Intent("Search", "src", "def main")),
        ("grep hello world", Intent("Search", text="hello world")),
        ("find greet in the folder src?", Intent("Search", "src", "greet")),
        ("what does git status say?", Intent("Git", text="status")),
        ("what changed?", Intent("Git", text="status")),
        ("show the git diff", Intent("Git", text="diff")),
        ("git log please", Intent("Git", text="log")),
        ("create hello.txt with Hello!", Intent("Write", "hello.txt", "Hello!")),
        ("write a new file called `docs/a.md` with the text: # A", Intent("Write", "docs/a.md", "# A")),
        ('create x.txt with "quoted text"', Intent("Write", "x.txt", "quoted text")),
        ("create x.py with\n```py\nprint(1)\n```", Intent("Write", "x.py", "print(1)")),
        ("create x.txt with 'a' and 'b'", Intent("Write", "x.txt", "'a' and 'b'")),
        ("write hello there to notes.txt", Intent("Write", "notes.txt", "hello there")),
        ("append one more line to notes.txt", Intent("Append", "notes.txt", "one more line")),
        ("replace Hello with Bye in hello.txt", Intent("Replace", "hello.txt", "Hello", "Bye")),
        ("replace `a b` by `` in x.txt", Intent("Replace", "x.txt", "a b", "")),
        ("wait 30 seconds", Intent("Wait", text="30")),
        ("what did I say?", Intent("Recall")),
        ("delete notes/todo.txt", Intent("Delete", "notes/todo.txt")),
        ("please remove the file `a b.txt`.", Intent("Delete", "a b.txt")),
        ("add a .gitignore", Intent("Ignore")),
        ("create .gitignore with dist/", Intent("Write", ".gitignore", "dist/")),
        ("review this repository", Intent("Review")),
        ("Hello!", Intent("Help")),
        ("/help", Intent("Help")),
        ("What can you do?", Intent("Help")),
        ("[written while you were offline] read README.md", Intent("Read", "README.md")),
    ],
)
def test_a_sentence(said: str, meant: Intent) -> None:
    assert understand(said) == [meant]


@pytest.mark.parametrize("said", ["how are you?", "fix the bug in the parser", "helpful", "hello world"])
def test_what_is_not_understood_is_said_to_be(said: str) -> None:
    assert understand(said) == [Intent("Unknown", text=said)]


@pytest.mark.parametrize("said", ["", "   "])
def test_nothing_is_asked_for(said: str) -> None:
    assert understand(said) == []


@pytest.mark.parametrize(
    "path",
    ["../x", "/etc/passwd", "a/../../x", ".git/config", "a/.git/hooks/x", ".codebutler/config.json", "~/x"],
)
def test_paths_that_leave_the_repository(path: str) -> None:
    assert not is_inside(path)
    assert understand(f"read {path}") == [Intent("Refused", path)]
    assert understand(f"create {path} with x") == [Intent("Refused", path)]


def test_several_messages_are_several_requests() -> None:
    assert understand("list the files\n\nread README.md") == [Intent("List"), Intent("Read", "README.md")]


def test_what_stands_beside_a_request_is_not_passed_over() -> None:
    assert understand("list the files\n\nfix the bug") == [
        Intent("List"),
        Intent("Unknown", text="fix the bug"),
    ]


@pytest.mark.parametrize("why", ["interrupted", "limit", "stopped"])
def test_what_the_prompt_itself_says_is_not_taken_for_words_of_a_person(why: str) -> None:
    answered = (("Which one?", "this one"),)
    assert understand(prompt(PromptMessage("read README.md"), why, answered)) == [Intent("Read", "README.md")]


def test_a_text_may_have_paragraphs() -> None:
    said = "create a.txt with one\n\ntwo\n\ngit status"
    assert understand(said) == [Intent("Write", "a.txt", "one\n\ntwo"), Intent("Git", text="status")]


@given(st.text(max_size=300))
def test_any_text_is_survived(said: str) -> None:
    for intent in understand(said):
        assert intent.verb == "Refused" or is_inside(intent.path)


NOTES = """\
[attached file: /srv/shop/.codebutler/files/F1-notes.txt (text/plain, 12 B)]
[attached file: /srv/shop/.codebutler/files/F2-a.png (image/png, 3 kB)]
[attached file lost.txt: it could not be fetched]"""
FILES = [
    Intent("Attached", ".codebutler/files/F1-notes.txt", "text/plain"),
    Intent("Attached", ".codebutler/files/F2-a.png", "image/png"),
]


def test_files_that_came_along_are_looked_at_last() -> None:
    assert understand(NOTES) == FILES
    assert understand(f"list the files\n\n{NOTES}") == [Intent("List"), *FILES]


@pytest.mark.parametrize(
    "said", ["read this", "Please look at these files.", "what's in it?", "Here is the file"]
)
def test_words_about_the_files_ask_for_no_more(said: str) -> None:
    assert understand(f"{said}\n\n{NOTES}") == FILES


def test_other_words_beside_a_file_are_not_passed_over() -> None:
    assert understand(f"fix this\n\n{NOTES}") == [Intent("Unknown", text="fix this"), *FILES]


def test_notes_of_files_get_into_no_text_that_is_written() -> None:
    prompt = f"create a.txt with one\n\n{NOTES}\n\ntwo"
    assert understand(prompt) == [Intent("Write", "a.txt", "one\n\ntwo"), *FILES]


@pytest.mark.parametrize(
    "note",
    [
        "[attached file: /srv/shop/.codebutler/config.json (text/plain, 1 B)]",
        "[attached file: /srv/shop/.codebutler/files/../config.json (text/plain, 1 B)]",
        "look at [attached file: /r/.codebutler/files/F1 (text/plain, 1 B)] now",
    ],
)
def test_only_what_the_prompt_says_itself_is_a_file_that_came(note: str) -> None:
    assert not any(intent.verb == "Attached" for intent in understand(note))


def test_a_skill_is_left_to_agents_that_can_read() -> None:
    asked = "list the files\n\n[skill review: do it this way]\nLook at it.\n\nSay more.\n[end of the skill]"
    assert understand(asked) == [Intent("List")]


def test_comments_from_a_page_of_changes_are_not_taken_for_sentences() -> None:
    comment = LineComment(path="greet.py", first=2, last=2, quote=("+delete x",), text="Why not Hi?")
    said = review_message([comment, comment])
    assert understand(prompt(PromptMessage(said))) == [Intent("Commented")]
