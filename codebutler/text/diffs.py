"""What git prints of several changed files."""

from __future__ import annotations

import re
from collections.abc import Callable

_FILE = re.compile(r"^(?=diff --git )", re.MULTILINE)
"""Every line of a file's content has a sign before it, so none begins a file."""


def redacted(diff: str, redact: Callable[[str], str]) -> str:
    """Without secrets, file by file: what looks like the beginning of a key in one must not hide the next ones."""
    return "".join(_whole_lines(part, redact) for part in _FILE.split(diff))


def _whole_lines(part: str, redact: Callable[[str], str]) -> str:
    lines = part.removesuffix("\n")
    return redact(lines) + part[len(lines) :]
