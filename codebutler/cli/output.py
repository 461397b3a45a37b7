"""What commands print. Answers go to stdout, notices to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec


def say(line: str = "") -> None:
    """One line of the answer."""
    sys.stdout.write(f"{printable(line)}\n")


def notice(line: str) -> None:
    """One line beside the answer: a warning, a step that was done."""
    sys.stderr.write(f"{printable(line)}\n")


def print_json(value: object) -> None:
    """The answer for programs, one document."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell; the last one is not padded."""
    widths = [max(len(row[index]) for row in (header, *rows)) for index in range(len(header))]
    for row in (header, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        say("  ".join(cells).rstrip())


def printable(text: str) -> str:
    """Without control characters: what a repository or a log holds must not drive the terminal."""
    return "".join(c if c.isprintable() or c == "\t" else "?" for c in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines: what an agent says."""
    return "\n".join(printable(line) for line in text.split("\n"))


def is_interactive() -> bool:
    """Whether somebody is there to answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()
