"""What a line shows while it is typed."""

from __future__ import annotations

import pytest

from codebutler.cli.prompts import TypedLine


def typed(keys: str, *, hidden: bool = False) -> tuple[TypedLine, str]:
    line = TypedLine(hidden=hidden)
    return line, "".join(line.feed(key) for key in keys)


@pytest.mark.parametrize(
    ("keys", "text", "shown"),
    [
        ("ada\n", "ada", "ada\n"),
        ("adx\x7fa\r", "ada", "adx\b \ba\n"),
        ("abc\x15x\n", "x", "abc" + 3 * "\b \b" + "x\n"),
        ("\x7fa\n", "a", "a\n"),
        ("a\x1b[D\x1b[1~\x1bOAb\n", "ab", "ab\n"),
        ("a\x00\tb\n", "ab", "ab\n"),
        ("é√\n", "é√", "é√\n"),
    ],
)
def test_a_line(keys: str, text: str, shown: str) -> None:
    line, seen = typed(keys)
    assert (line.text, seen, line.is_done, line.is_eof) == (text, shown, True, False)


@pytest.mark.parametrize("secret", ["xoxb-1-2-abc", "xapp-1-abc", "  xoxp-1", "sk-abc"])
def test_a_token_at_a_visible_question_shows_as_bullets(secret: str) -> None:
    line, seen = typed(secret)
    assert line.text == secret
    assert secret[-3:] not in seen
    assert "•••" in seen


def test_a_secret_shows_as_bullets_from_its_first_character() -> None:
    line, seen = typed("abc", hidden=True)
    assert (line.text, seen) == ("abc", "•••")


def test_the_end_of_input() -> None:
    assert typed("\x04")[0].is_eof
