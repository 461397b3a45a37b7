"""What commands print, and how a terminal shows it. Answers go to stdout, notices to stderr (colours: no-color.org)."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

GAP = "  "
NARROWEST = 8
_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# Longer lines are hard to read.
TEXT_COLUMNS = 100
Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]


def print_line(line: str = "") -> None:
    """One line of the answer."""
    sys.stdout.write(f"{printable(line)}\n")


def notice(line: str) -> None:
    """One line beside the answer: a warning, a finished step."""
    sys.stderr.write(f"{printable(line)}\n")


def warn(line: str) -> None:
    """One warning line; the command continues."""
    notice(f"warning: {line}")


def print_error(line: str) -> None:
    """The one line of an error: what happened, then what to do."""
    notice(f"codebutler: {' '.join(line.split())}")


def print_json(value: object) -> None:
    """The answer for programs, as one document."""
    import msgspec  # `--help` needs none

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their widest cell; in a narrower terminal the widest wrap."""
    widths = [max(len(row[index]) for row in (header, *rows)) for index in range(len(header))]
    if sys.stdout.isatty():
        widths = fit_widths(widths, columns())
    for number, row in enumerate((header, *rows)):
        cells = [wrap(printable(cell), width) for cell, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [part.ljust(width) for part, width in zip(parts, widths, strict=True)]
            line = GAP.join(padded).rstrip()
            sys.stdout.write(f"{line if number else painted(line, 'bold')}\n")


def fit_widths(widths: Sequence[int], room: int) -> list[int]:
    """The widths of columns that have ``room`` together: the widest shrink, down to NARROWEST. Pure."""
    widths, room = list(widths), room - len(GAP) * (len(widths) - 1)
    while sum(widths) > room and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def printable(text: str) -> str:
    """Without control characters: a repository's or a log's text must not drive the terminal."""
    return "".join(c if c.isprintable() or c == "\t" else "?" for c in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines: an agent's."""
    return "\n".join(printable(line) for line in text.split("\n"))


def is_interactive() -> bool:
    """Whether a person is there to answer questions."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def painted(text: str, style: Style) -> str:
    """The styled text if standard output is a terminal with colours, else the plain text."""
    if not text or not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def columns() -> int:
    """The width of the terminal, or 80 without one."""
    return max(shutil.get_terminal_size().columns, 20)


def wrap(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width``; breaks only words that are longer."""
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def definitions(rows: list[tuple[str, str]], style: Style | None = None) -> list[str]:
    """A name and its text beside it, each of one or more lines, in as many columns as the terminal has."""
    width = min(columns(), TEXT_COLUMNS)
    indent = min(max((len(name) for name, _ in rows), default=0), width // 3) + 4
    lines = []
    for name, text in rows:
        shown = painted(name, style) if style else name
        parts = wrap(text, width - indent)
        if len(name) + 4 > indent:
            lines.append(f"  {shown}")
        else:
            lines.append(f"  {shown}{' ' * (indent - 2 - len(name))}{parts.pop(0)}".rstrip())
        lines += [f"{' ' * indent}{part}" for part in parts]
    return lines


def age(seconds: float) -> str:
    """How long ago, in the largest unit: ``3d``, ``2h``, ``5m``, ``now``."""
    units = (("d", 86_400), ("h", 3_600), ("m", 60))
    return next((f"{int(seconds // unit_s)}{name}" for name, unit_s in units if seconds >= unit_s), "now")
