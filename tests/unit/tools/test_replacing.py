"""Where an edit is made, and what it leaves alone."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codebutler_worker.tools.matching import PLAIN, find_matches
from codebutler_worker.tools.replacing import apply_replacements, find_replacements, nearest_lines
from codebutler_worker.tools.tool import ToolError


def edited(text: str, old: str, new: str, *, every: bool = False) -> str:
    return apply_replacements(text, find_replacements("f", text, old, new, every=every)[0])


FILE = """\
class Shop:
    def total(self, items):
        if not items:
            return 0
        return sum(items) + 1\x20\x20

    def name(self):
        return "it's"
"""


@pytest.mark.parametrize(
    ("old", "new", "becomes"),
    [
        # To the letter.
        ("sum(items) + 1", "sum(items)", ("sum(items) + 1", "sum(items)")),
        # Without the white space at the end of a line.
        ("return sum(items) + 1\n\n    def name", "return 0\n\n    def name", None),
        (
            "        return sum(items) + 1\n\n    def name(self):\n",
            "        return sum(items)\n\n    def name(self):\n",
            ("sum(items) + 1  ", "sum(items)"),
        ),
        # With white space that is not there.
        (
            "        if not items:  \n            return 0\t\n",
            "        if not items:\n            return 1",
            ("return 0", "return 1"),
        ),
        # Less deep than in the file, and with blank lines around it.
        (
            "\nif not items:\n    return 0\n",
            "\nif not items:\n    raise ValueError\n",
            ("return 0", "raise ValueError"),
        ),
        # Deeper.
        ("                return 0", "                return 5", ("return 0", "return 5")),
        # With two blanks for four, and a new depth.
        (
            "if not items:\n  return 0\n",
            "if not items:\n  if self:\n    return 1\n  return 0\n",
            ("            return 0", "            if self:\n                return 1\n            return 0"),
        ),
        # Typographic.
        ("return “it’s”", "return “its own”", ('"it\'s"', '"its own"')),
        # With the numbers that read_files shows.
        (
            "3\t        if not items:\n4\t            return 0",
            "3\t        if not items:\n4\t            return 2",
            ("return 0", "return 2"),
        ),
        # Escaped once too often.
        (
            "if not items:\\n            return 0",
            "if not items:\\n            return 3",
            ("return 0", "return 3"),
        ),
        # Whole lines go.
        ("if not items:\n    return 0\n", "", ("        if not items:\n            return 0\n", "")),
    ],
)
def test_a_place_is_found_and_nothing_else_changes(
    old: str, new: str, becomes: tuple[str, str] | None
) -> None:
    if becomes is None:
        with pytest.raises(ToolError, match="not in the file"):
            edited(FILE, old, new)
        return
    for text in (FILE, FILE.replace("\n", "\r\n")):
        before, after = (part.replace("\n", "\r\n") if "\r" in text else part for part in becomes)
        assert text.count(before) == 1
        assert edited(text, old, new) == text.replace(before, after)


def test_tabs_stay_tabs() -> None:
    text = "if a:\n\tif b:\n\t\treturn 1\n"
    old, new = (
        "    if b:\n        return 1\n",
        "    if b:\n        if c:\n            return 2\n        return 1\n",
    )
    assert edited(text, old, new) == "if a:\n\tif b:\n\t\tif c:\n\t\t\treturn 2\n\t\treturn 1\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "becomes"),
    [
        ("f(a,b,c)\n", ",", ", ", "f(a, b, c)\n"),
        ("x = 1 + 2\n", "x = 1 ", "x = 1", "x = 1+ 2\n"),
        ("a\nreturn(1)\n", "a\nreturn", "b\nreturn ", "b\nreturn (1)\n"),
        ("a  \r\nb\r\n", "a  \nb", "a\nb", "a\r\nb\r\n"),
        ("a\n", "a", "a  ", "a  \n"),
    ],
)
def test_white_space_changes_where_that_is_what_is_meant(text: str, old: str, new: str, becomes: str) -> None:
    assert edited(text, old, new, every=True) == becomes


def test_typographic_characters_of_the_file_stay() -> None:
    assert edited("“Hello” – world\n", '"Hello" - world', '"Hello" - moon') == "“Hello” – moon\n"


@pytest.mark.parametrize(
    ("text", "old", "why"),
    [
        (
            "a\nb\na\n",
            "a",
            "occurs 2 times, in lines 1, 3: give more of the lines around it, or set `all`",
        ),
        # Which of both is meant cannot be known from what is less deep than either.
        ("  x\n    y\n\n    x\n      y\n", "x\n  y", "occurs 2 times, in lines 1, 4"),
        # What is equally deep here is not there.
        ("if a:\n  x\n    y\n", "x\ny", "not in the file"),
        ("if a:\n  b\nc\n", "if a:\n  b\n  c", "not in the file"),
        ("foo bar\n", "foo   ", "not in the file"),
        ("abc\n", "abc", "the same"),
        ("one\ntwo\nthree\n", "tow\nthree", "The nearest lines:\n1\tone\n2\ttwo\n3\tthree"),
        ("def total(things):\n    pass\n", "def totals(things)", "1\tdef total(things):\n2\t    pass"),
        ("value = compute(1, 2)\n", "value = compute(1)", "1\tvalue = compute(1, 2)"),
        ("def new_name_here():\n", "def old():", "`new` is: it seems to be done already"),
        ("", "anything", "not in the file."),
    ],
)
def test_what_is_not_there_once_is_refused_with_what_is(text: str, old: str, why: str) -> None:
    with pytest.raises(ToolError) as refused:
        edited(text, old, old if "same" in why else "def new_name_here():")
    assert why in str(refused.value)


def test_every_place_is_replaced_each_at_its_own_depth() -> None:
    text = "  a\n    b\n\n      a\n        b\n"
    assert edited(text, "a\n  b", "a\n  c", every=True) == text.replace("b", "c")


def test_what_is_long_and_fits_nowhere_is_no_riddle() -> None:
    for text, old in (
        (" " * 10**6 + "x", " " * 1000 + "y"),
        ("ab" * 10**5, "ba" * 10**4 + "c"),
        ("1\n" * 10**4, "9" * 9000 + "\tx"),
        ("’" * 2000 + "a\n", "'" * 2000 + "b"),
    ):
        with pytest.raises(ToolError, match="not in the file"):
            edited(text, old, "z")


def test_lines_near_it_are_few_and_short() -> None:
    text = "\n".join(f"line {at} {'y' * 5000}" for at in range(300))
    shown = nearest_lines(text, "\n".join(f"line {at} {'y' * 900}?" for at in range(100, 200)))
    assert len(shown.split("\n")) <= 41
    assert len(shown) < 41 * 300


LINE = st.builds(
    lambda depth, words, end: "  " * depth + words + end,
    st.integers(0, 3),
    st.sampled_from(["", "x", "y = 1", "it's", "“q”", "a b"]),
    st.sampled_from(["", "", " ", "\t"]),
)
ENDS = st.sampled_from(["\n", "\r\n"])
TEXT = st.builds(lambda lines, end: end.join(lines) + end, st.lists(LINE, min_size=1, max_size=8), ENDS)
ANY = st.text(st.sampled_from("ab \t\n'’\r0123\\n"), max_size=12)


def bare(text: str) -> list[str]:
    """What all rules agree on: the words of the lines, without what may be overlooked."""
    lines = [line.strip() for line in text.translate(PLAIN).replace("\r\n", "\n").split("\n")]
    while len(lines) > 1 and not lines[0]:
        lines.pop(0)
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


@given(TEXT | ANY, ANY.filter(bool), ANY)
def test_nothing_is_touched_but_what_the_rule_says(text: str, old: str, new: str) -> None:
    found = find_matches(text, old, new)
    for match in found:
        assert bare(text[match.start : match.end]) == bare(match.wording.old)
        if "escapes" not in match.rule and "line numbers" not in match.rule:
            assert bare(match.wording.old) == bare(old)
    assert bool(found) or old not in text
    try:
        made = find_replacements("f", text, old, new, every=True)[0]
    except ToolError:
        return
    result, shift, at = apply_replacements(text, made), 0, 0
    for change in made:
        assert text[at : change.start] == result[at + shift : change.start + shift]
        assert result[change.start + shift :].startswith(change.text)
        shift += len(change.text) - (change.end - change.start)
        at = change.end
    assert text[at:] == result[at + shift :]


@given(TEXT, st.data())
def test_a_line_that_was_copied_badly_is_the_only_one_that_changes(text: str, data: st.DataObject) -> None:
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.split(end)[:-1]
    first = data.draw(st.integers(0, len(lines) - 1))
    last = data.draw(st.integers(first, len(lines) - 1))
    at = data.draw(st.integers(first, last))
    assume(lines[at].strip() and lines[first].strip() and lines[last].strip())
    deeper = data.draw(st.sampled_from(["", "    "]))
    typographic = data.draw(st.booleans())

    def slipped(line: str) -> str:
        line = deeper + line.rstrip() if line.strip() else ""
        return line.replace("'", "’") if typographic else line

    meant = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + "changed"
    copied = [slipped(line) for line in lines[first : last + 1]]
    wanted = [*copied[: at - first], slipped(meant), *copied[at - first + 1 :]]
    old, new = "\n".join(copied), "\n".join(wanted)
    found = find_matches(text, old, new)
    assert found
    # Copied badly, it may be another line to the letter.
    assume(len(found) == 1 and text.count("\n", 0, found[0].start) == first)
    result = edited(text, old, new)
    # To the letter the white space behind a part of a line stays as well.
    kept = (
        lines[at][len(lines[at].rstrip()) :]
        if found[0].rule in ("", "typographic characters") and at == last
        else ""
    )
    assert result == end.join([*lines[:at], meant + kept, *lines[at + 1 :], ""])


WORDS = st.text("ab ’'0\\\t", max_size=5)


@given(TEXT, WORDS, WORDS, TEXT, st.sampled_from(["z", "", "a b"]))
def test_to_the_letter_it_is_what_it_always_was(
    before: str, head: str, tail: str, after: str, new: str
) -> None:
    old = f"{head}@{tail}"
    text = before + old + after
    assert edited(text, old, new) == text.replace(old, new)
