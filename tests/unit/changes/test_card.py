"""What a run changed, as its card and its diff say it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.config.schema import Check
from codebutler_worker.changes.card import (
    FILES_SHOWN,
    PER_PAGE,
    RUNNING,
    CheckResult,
    card,
    file_line,
    headline,
    last_lines,
    listed,
    one_file,
    repair_prompt,
    running_line,
    verdict_of,
    with_verdict,
)
from codebutler_worker.commands.changes import SUBJECT_CHARS, commit_message
from codebutler_worker.tree.tree import Difference, FileChange, parsed

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "see-what-changed.md"
MAKE = Check(name="make test", command="make test")
A, B = "a" * 40, "b" * 40


def found(*files: FileChange, commits: tuple[str, ...] = (), body: str = "", cut: bool = False) -> Difference:
    return Difference(A, B, files, commits, body, cut)


def test_the_card_is_the_one_that_its_page_shows() -> None:
    what = found(
        FileChange("src/cart.py", 10, 2),
        FileChange("tests/test_cart.py", 2, 2),
        commits=("1a2b3c4 Round prices once",),
    )
    posted = card(what, "t1", notes=[running_line((MAKE,))], offer=False)
    shown = with_verdict(
        posted, verdict_of([CheckResult("make test", ok=True, seconds=34)]), "t1", offer=False
    )
    buttons = " ".join(f"[{each.label}]" for each in shown.buttons)
    picture = re.search(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert picture is not None
    assert re.sub(r"[`*]", "", shown.markdown) + f"\n{buttons}\n" == picture[1]


def test_what_git_prints_is_read_whatever_the_names() -> None:
    printed = b"1\t2\ta.txt\x00-\t-\tlogo.png\x000\t0\t\x00old name\x00new\nname\x00\x00diff --git"
    assert parsed(printed) == (
        (
            FileChange("a.txt", 1, 2),
            FileChange("logo.png", None, None),
            FileChange("new\nname", 0, 0, "old name"),
        ),
        b"diff --git",
    )
    assert parsed(b"\x00") == ((), b"")


@pytest.mark.parametrize(
    ("file", "line"),
    [
        (FileChange("a.py", 3, 0), "`a.py` +3 −0"),
        (FileChange("logo.png", None, None), "`logo.png` binary"),
        (FileChange("b.py", 0, 0, "a.py"), "`a.py` → `b.py` +0 −0"),
        (FileChange("x/" * 50 + "end.py", 1, 1), f"`…{('x/' * 50 + 'end.py')[-59:]}` +1 −1"),
    ],
)
def test_a_file_is_one_line(file: FileChange, line: str) -> None:
    assert file_line(file) == line


def test_a_card_shows_a_few_files_and_counts_the_rest() -> None:
    files = [FileChange(f"{number}.py", 1, 0) for number in range(FILES_SHOWN + 2)]
    text = card(found(*files), "t1", offer=False).markdown
    assert text.count(".py`") == FILES_SHOWN
    assert text.endswith("… and 2 more files")
    exact = card(found(*files[:FILES_SHOWN]), "t1", offer=False).markdown
    assert "more file" not in exact
    assert headline(found(FileChange("logo.png", None, None))) == "**1 file changed**"


def test_no_name_of_a_file_passes_for_the_line_of_the_checks() -> None:
    posted = card(
        found(FileChange(f"\n{RUNNING} mine", 1, 0)), "t1", notes=[running_line((MAKE,))], offer=False
    )
    shown = with_verdict(posted, "✅", "t1", offer=False)
    assert "mine" in shown.markdown
    assert "make test" not in shown.markdown


def test_a_failed_check_says_how_and_shows_its_end() -> None:
    tail = "\n".join(map(str, range(100)))
    failed = CheckResult("lint", ok=False, seconds=65, exit_code=1, tail=tail, log="ab12cd34")
    text = verdict_of([failed])
    assert text.startswith("❌ `lint` failed (exit code 1) after 1m05s · `!logs ab12cd34`\n")
    assert "\n99" in text
    assert "\n80\n" not in text
    assert verdict_of([CheckResult("x", ok=False, seconds=5, why="was stopped at its time limit")]) == (
        "❌ `x` was stopped at its time limit after 5s"
    )
    assert "lint: exit code 1" in repair_prompt([failed, CheckResult("ok", ok=True, seconds=1)])


@given(st.text())
def test_the_last_lines_are_few(text: str) -> None:
    assert len(last_lines(text)) <= 901


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("fix it", "fix it"),
        ("", "Changes of a run"),
        ("fix it\n\n  please", "fix it\n\nfix it\n\n  please"),
    ],
)
def test_the_task_is_the_message_of_a_commit(task: str, message: str) -> None:
    assert commit_message(task) == message


@given(st.text())
def test_the_first_line_of_a_commit_is_short(task: str) -> None:
    assert 0 < len(commit_message(task).split("\n")[0]) <= SUBJECT_CHARS


def test_a_short_difference_is_said_and_a_long_one_is_listed() -> None:
    files = [FileChange(f"{number}/a.py", 1, 0) for number in range(PER_PAGE + 3)]
    short = listed(found(*files, body="+one\n"), 3500)
    assert "+one" in short.messages[0].markdown
    assert short.messages[0].buttons == ()
    body = "+line\n" * 100
    first, last = (listed(found(*files, body=body), 3500, page=page).messages[0] for page in (0, 1))
    assert [each.label for each in first.buttons[-2:]] == ["More files", "All in one file"]
    assert (first.buttons[0].label, first.buttons[0].value) == ("0/a.py", f"{A} {B} f0")
    assert [each.value for each in last.buttons] == [f"{A} {B} {wish}" for wish in ("f8", "f9", "f10", "a")]
    assert all(len(each.label) <= 24 for each in (*first.buttons, *last.buttons))


def test_a_file_that_is_cut_says_so() -> None:
    cut = found(FileChange("a.py", 9, 0), body="+" + "x" * 2**20, cut=True)
    reply = one_file(cut, cut.files[0], 3500)
    assert "The file holds the first 1 MB only" in reply.messages[0].markdown
    assert reply.files[0].filename == "a.py.diff"
    assert listed(cut, 3500, whispered=True).files == ()
