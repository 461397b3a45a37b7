"""What commands print. Answers go to stdout, notices to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import zip_longest

import msgspec

from codebutler.cli.style import columns, painted, wrapped

GAP = "  "
NARROWEST = 8


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
    """Columns as wide as their widest cell; in a terminal that is narrower, the widest of them wrap."""
    widths = [max(len(row[index]) for row in (header, *rows)) for index in range(len(header))]
    if sys.stdout.isatty():
        widths = fitting(widths, columns())
    for number, row in enumerate((header, *rows)):
        cells = [wrapped(printable(cell), width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [part.ljust(width) for part, width in zip(parts, widths, strict=True)]
            line = GAP.join(padded).rstrip()
            sys.stdout.write(f"{line if number else painted(line, 'bold')}\n")


def fitting(widths: Sequence[int], room: int) -> list[int]:
    """The widths of columns that have ``room`` together: the widest give way, down to NARROWEST. Pure."""
    widths, room = list(widths), room - len(GAP) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def printable(text: str) -> str:
    """Without control characters: what a repository or a log holds must not drive the terminal."""
    return "".join(c if c.isprintable() or c == "\t" else "?" for c in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines: what an agent says."""
    return "\n".join(printable(line) for line in text.split("\n"))


def is_interactive() -> bool:
    """Whether somebody is there to answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()
