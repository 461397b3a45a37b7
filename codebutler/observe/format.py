"""A log record as one line: ``2026-02-14 15:04:05 TAG  text``, in local time. Pure.

Whatever is logged may come from a stranger: what could forge a line or drive a terminal is escaped.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

from codebutler.observe.ring import Line

TAGS: dict[str, int] = {
    "DBG": logging.DEBUG,
    "INF": logging.INFO,
    "MSG": logging.INFO,
    "CLD": logging.INFO,
    "RSP": logging.INFO,
    "MEM": logging.INFO,
    "WRN": logging.WARNING,
    "ERR": logging.ERROR,
}

LEVELS: dict[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}

# C0 and C1 controls, line and paragraph separators, bidirectional overrides, lone surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def escape_controls(text: str) -> str:
    """``text`` on one line, each control character as Python would write it."""
    return _UNSAFE.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def tag_of(record: logging.LogRecord) -> str:
    """The record's own tag (``extra={"tag": "MSG"}``), or the one of its level."""
    tag = getattr(record, "tag", "")
    if tag in TAGS:
        return str(tag)
    if record.levelno >= logging.ERROR:
        return "ERR"
    if record.levelno >= logging.WARNING:
        return "WRN"
    return "INF" if record.levelno >= logging.INFO else "DBG"


class LineFormatter(logging.Formatter):
    """Formats records; ``redact`` takes the secrets out of their text."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        super().__init__("%(message)s")
        self._redact = redact

    def describe(self, record: logging.LogRecord) -> Line:
        """The record as data; a traceback becomes part of its text."""
        return Line(
            at=record.created,
            tag=tag_of(record),
            repo=escape_controls(str(getattr(record, "repo", "") or "")),
            text=escape_controls(self._redact(super().format(record))),
        )

    def format(self, record: logging.LogRecord) -> str:
        """The whole line."""
        return render(self.describe(record))


def render(line: Line) -> str:
    """``line`` as it stands in the log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    repo = f"[{line.repo}] " if line.repo else ""
    return f"{stamp} {line.tag}  {repo}{line.text}"
