"""Answers apart from the figures below them, and a program's output apart from what frames it. Pure."""

from __future__ import annotations

import re

FENCE = "```"
RUNNING = "⏳ Running…"
_FOOTER = re.compile(r"(?:_(\S+)_ • )?_((?:tokens: .*|\d+s|\d+m\d\ds|\d+h\d\dm)[^_\n]*)_")
FRAMES = frozenset({FENCE, RUNNING})
"""The lines around a program's output."""


def footed(text: str) -> tuple[str, str]:
    """An answer and the figures below it, "" where there are none."""
    body, _, last = text.rstrip().rpartition("\n")
    found = _FOOTER.fullmatch(last.strip())
    if found is None:
        return text, ""
    return body.strip("\n"), " • ".join(part for part in found.groups() if part)


def apart(text: str) -> tuple[str, str]:
    """What a script wants of a message, and what it does not: figures, or how a program ended."""
    body, figures = footed(text)
    if figures:
        return body, figures
    lines = text.split("\n")
    if lines[0] != FENCE or FENCE not in lines[1:]:
        return text, ""
    end = len(lines) - 1 - lines[::-1].index(FENCE)
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])
