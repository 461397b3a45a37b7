"""Colours only where they are wanted; tables and help as wide as the terminal."""

from __future__ import annotations

import io

import pytest

from codebutler.cli.output import definitions, fit_widths, painted, print_table

ROWS = [("shop", "C0SHOP000", "a long description that has many words in it and goes on for a while")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def in_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Not a fixture: pytest puts its own stdout in place after those."""
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return screen


def test_a_terminal_gets_colours_unless_it_wants_none(monkeypatch: pytest.MonkeyPatch) -> None:
    in_terminal(monkeypatch)
    assert painted("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert painted("x", "red") == "x"
    monkeypatch.setenv("NO_COLOR", "")
    assert painted("x", "red") != "x"
    monkeypatch.setenv("TERM", "dumb")
    assert painted("x", "red") == "x"


def test_a_pipe_gets_none_and_whole_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert painted("x", "red") == "x"
    print_table(("NAME", "CHANNEL", "TEXT"), ROWS)
    assert capsys.readouterr().out.splitlines() == [
        "NAME  CHANNEL    TEXT",
        f"shop  C0SHOP000  {ROWS[0][2]}",
    ]


def test_a_table_wraps_to_the_terminals_width(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    monkeypatch.setenv("NO_COLOR", "1")
    print_table(("NAME", "CHANNEL", "TEXT"), [*ROWS, ("x", "-", "y" * 120)])
    lines = terminal.getvalue().splitlines()
    assert max(map(len, lines)) <= 50
    assert lines[1].startswith("shop  C0SHOP000  a long description")
    assert " ".join(" ".join(lines[1:4]).split()) == " ".join(ROWS[0])


def test_nothing_in_a_cell_drives_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    print_table(("NAME",), [("a\x1b]0;x\x07",)])
    assert "\x07" not in terminal.getvalue()


def test_the_widest_columns_give_way_first() -> None:
    assert fit_widths([4, 30, 60], 60) == [4, 26, 26]
    assert fit_widths([4, 5], 60) == [4, 5]
    assert fit_widths([40, 40], 10) == [8, 8]


def test_a_name_that_is_too_long_has_a_line_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    in_terminal(monkeypatch)
    lines = definitions(
        [("--agent claude|kimi|native|rehearsal", "The agent that answers."), ("-x", "Short.")]
    )
    assert lines[0] == "  --agent claude|kimi|native|rehearsal"
    assert lines[1].strip() == "The agent that answers."
    assert lines[2].split() == ["-x", "Short."]
