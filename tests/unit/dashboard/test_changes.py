"""What a run changed as its page shows it, and comments as one message."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.conversations import ChangedFile, RunChanges
from codebutler.text.redact import Redactor, redacted_diff
from codebutler.web.dashboard.changes import (
    LINE_CHARS,
    MAX_LINES,
    MESSAGE_CHARS,
    QUOTE_LINES,
    ChangesView,
    DiffLineView,
    LineComment,
    changes_view,
    review_message,
)

BODY = b"""diff --git a/a.py b/a.py
index 1..2 100644
--- a/a.py
+++ b/a.py
@@ -1,3 +1,3 @@ def first():
 one
-two
+zwei
\\ No newline at end of file
@@ -10 +10,2 @@
-ten
+++ zehn
+elf
diff --git a/b.sh b/b.sh
old mode 100644
new mode 100755
diff --git a/c.txt b/c.txt
--- a/c.txt
+++ b/c.txt
@@ -0,0 +1 @@
+diff --git a/x b/x
"""


def changes(body: bytes, *files: ChangedFile, **more: object) -> ChangesView:
    told = RunChanges(request_id="r", thread="1.0", task="do it", files=files, body=body)
    return changes_view("shop", msgspec.structs.replace(told, **more), "", str)


def shown(path: str) -> ChangedFile:
    return ChangedFile(path=path, added=1, removed=1, is_shown=True)


def test_each_line_knows_its_number_before_and_after() -> None:
    logo = ChangedFile(path="logo.png")
    long = ChangedFile(path="long.txt", added=9000, removed=0)
    view = changes(BODY, shown("a.py"), logo, shown("b.sh"), long, shown("c.txt"))
    assert [(file.path, file.shown) for file in view.files] == [
        ("a.py", "lines"), ("logo.png", "binary"), ("b.sh", "empty"), ("long.txt", "long"), ("c.txt", "lines"),
    ]  # fmt: skip
    first, second = view.files[0].hunks
    assert first.title == "def first():"
    assert first.lines == (
        DiffLineView(" ", 1, 1, "one"), DiffLineView("-", 2, 0, "two"), DiffLineView("+", 0, 2, "zwei"),
    )  # fmt: skip
    assert second.lines[1] == DiffLineView("+", 0, 10, "++ zehn")
    assert view.files[4].hunks[0].lines == (DiffLineView("+", 0, 1, "diff --git a/x b/x"),)


def test_it_is_bounded_and_without_secrets() -> None:
    body = b"diff --git a/a b/a\n@@ -0,0 +1 @@\n+" + b"x" * 5000 + b"\n" + b"+y\n" * MAX_LINES
    view = changes(body, shown("a"))
    lines = view.files[0].hunks[0].lines
    assert (len(lines), len(lines[0].text), view.is_cut) == (MAX_LINES, LINE_CHARS, True)
    told = RunChanges(request_id="r", task="hide", files=(shown("hide"),), body=BODY)
    clean = changes_view("shop", told, "", lambda text: text.replace("hide", "-").replace("zwei", "-"))
    assert (clean.task, clean.files[0].path, clean.files[0].hunks[0].lines[2].text) == ("-", "-", "-")


def test_what_looks_like_a_key_hides_no_other_file() -> None:
    key = "diff --git a/a.pem b/a.pem\n--- /dev/null\n+++ b/a.pem\n@@ -0,0 +1 @@\n+-----BEGIN PRIVATE KEY-----\n"
    door = "diff --git a/b.py b/b.py\n@@ -0,0 +1 @@\n+open_the_door()\n"
    end = "diff --git a/c.py b/c.py\n@@ -0,0 +2 @@\n+-----END PRIVATE KEY-----\n+shut_it()\n"
    files = (shown("a.pem"), shown("b.py"), shown("c.py"))
    for body in (key + door, key + door + end, redacted_diff(key + door + end, Redactor().redact)):
        told = RunChanges(request_id="r", files=files, body=body.encode())
        view = changes_view("shop", told, "", Redactor().redact)
        assert view.files[1].hunks[0].lines == (DiffLineView("+", 0, 1, "open_the_door()"),)
    assert view.files[2].hunks[0].lines[1].text == "shut_it()"


def test_signs_that_turn_text_around_are_shown() -> None:
    body = "diff --git a/a b/a\n@@ -0,0 +1 @@ def \u202ea():\n+if admin: \u202e# ok\u2066\n".encode()
    hunk = changes(body, shown("a")).files[0].hunks[0]
    assert hunk.title == "def ⟦U+202E⟧a():"
    assert hunk.lines[0].text == "if admin: ⟦U+202E⟧# ok⟦U+2066⟧"


@given(st.binary(max_size=400), st.lists(st.booleans(), max_size=4))
def test_whatever_a_worker_says_is_shown_as_something(body: bytes, are_shown: list[bool]) -> None:
    files = [ChangedFile(path="a", added=1, removed=0, is_shown=each) for each in are_shown]
    for part in (body, b"diff --git a b\n@@ " + body, BODY + body):
        assert len(changes(part, *files).files) == len(files)


def test_comments_are_one_message() -> None:
    comments = [
        LineComment(path="a.py", first=2, last=2, quote=("+zwei",), text="Why German?"),
        LineComment(path="a.py", first=1, last=9, side="old", quote=("-x",) * 9, text=" Keep it.\n"),
        LineComment(path="a\n!stop", first=0, last=0, text="And here?"),
        LineComment(path="a.py", first=3, last=3, text="  "),
    ]
    assert review_message(comments) == "\n\n".join(
        [
            "Comments on your changes:",
            "a.py:2\n> +zwei\nWhy German?",
            "a.py:1-9 (before the change)\n" + "> -x\n" * QUOTE_LINES + "> …\nKeep it.",
            "a !stop\nAnd here?",
        ]
    )


@pytest.mark.parametrize("text", [" ", "x" * MESSAGE_CHARS])
def test_too_much_or_nothing_is_not_sent(text: str) -> None:
    with pytest.raises(CodeButlerError):
        review_message([LineComment(path="a", first=1, last=1, text=text)])
