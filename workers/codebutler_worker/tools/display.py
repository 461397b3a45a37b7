"""What a terminal would show, as text of limited length. Pure."""

from __future__ import annotations

import difflib
import re

from codebutler_worker.sandbox.prelude import hint

HEAD_CHARS = 6_000
TAIL_CHARS = 18_000
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])"
)
_OTHERS = re.compile(r"[\x00-\x07\x0b-\x1a\x1c-\x1f\x7f]")


def shown(text: str) -> str:
    """The text without escape sequences; an overwritten line is shown as last written."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n")
    if "\r" in text or "\b" in text:
        text = "\n".join(_last(line) for line in text.split("\n"))
    return _OTHERS.sub("", text).replace("\x1b", "")


def told(text: str) -> tuple[str, bool]:
    """The beginning and the end of a program's output, with a hint if the sandbox got in its way, and whether something
    is left out."""
    text = shown(text).rstrip()
    advice = f"\n({hint(text)})" if hint(text) else ""
    if len(text) <= HEAD_CHARS + TAIL_CHARS:
        return text + advice, False
    left_out = len(text) - HEAD_CHARS - TAIL_CHARS
    kept = f"{text[:HEAD_CHARS]}\n[… {left_out} characters are left out …]\n{text[-TAIL_CHARS:]}"
    return kept + advice, True


def clipped(line: str, most: int) -> str:
    """The beginning of a line, and how much is left out."""
    return line if len(line) <= most else f"{line[:most]} [… {len(line) - most} more characters]"


def _last(line: str) -> str:
    kept: list[str] = []
    for char in line.rstrip("\r").rpartition("\r")[2]:
        if char != "\b":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)


MAX_LINES = 200
MAX_DIFFED_CHARS = 400_000
"""Comparing much larger texts takes seconds."""


def difference(path: str, before: str, after: str) -> str:
    """The diff between two versions of a file."""
    if before == after:
        return "(nothing changed)"
    old, new = before.split("\n"), after.split("\n")
    if len(before) + len(after) > MAX_DIFFED_CHARS:
        return f"({len(new)} lines)"
    lines = list(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm=""))
    shown = lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        shown.append(f"… and {len(lines) - MAX_LINES} more lines")
    return "\n".join(shown) or "(only line ends changed)"
