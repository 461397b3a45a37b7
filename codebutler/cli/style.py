"""What a terminal can show: its width, and whether colours are wanted (https://no-color.org)."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from typing import Literal

Style = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# Longer lines are hard to read.
TEXT_COLUMNS = 100


def painted(text: str, style: Style) -> str:
    """The text in that style where standard output is a terminal that wants it, else as it is."""
    if not text or not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


def columns() -> int:
    """The width of the terminal, or 80 where there is none."""
    return max(shutil.get_terminal_size().columns, 20)


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width``; words are broken only where they are longer."""
    return textwrap.wrap(text, width, break_on_hyphens=False) or [""]


def definitions(rows: list[tuple[str, str]], style: Style | None = None) -> list[str]:
    """A name and its text beside it, a line or several each, in as many columns as the terminal has."""
    width = min(columns(), TEXT_COLUMNS)
    indent = min(max((len(name) for name, _ in rows), default=0), width // 3) + 4
    lines = []
    for name, text in rows:
        shown = painted(name, style) if style else name
        parts = wrapped(text, width - indent)
        if len(name) + 4 > indent:
            lines.append(f"  {shown}")
        else:
            lines.append(f"  {shown}{' ' * (indent - 2 - len(name))}{parts.pop(0)}".rstrip())
        lines += [f"{' ' * indent}{part}" for part in parts]
    return lines
