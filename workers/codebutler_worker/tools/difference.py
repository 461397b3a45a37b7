"""What a change did, as a unified diff of bounded length. Pure."""

from __future__ import annotations

import difflib

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
