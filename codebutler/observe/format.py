"""A log record as one line: ``2026-02-14 15:04:05 TAG  text``, in local time. Pure.

Whatever is logged may come from a stranger: what could forge a line or drive a terminal is escaped.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Protocol

from codebutler.observe.ring import Line

_LEVELS = {"DBG": logging.DEBUG, "WRN": logging.WARNING, "ERR": logging.ERROR}
_TAG = re.compile("[A-Z]{3}")

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


def level_of(tag: str) -> int:
    """How much a line with this tag matters: INF, MSG, RSP, MEM and those of agents inform."""
    return _LEVELS.get(tag, logging.INFO)


def tag_of(record: logging.LogRecord) -> str:
    """The record's own tag (``extra={"tag": "MSG"}``), or the one of its level."""
    tag = str(getattr(record, "tag", ""))
    if _TAG.fullmatch(tag):
        return tag
    if record.levelno >= logging.ERROR:
        return "ERR"
    if record.levelno >= logging.WARNING:
        return "WRN"
    return "INF" if record.levelno >= logging.INFO else "DBG"


class People(Protocol):
    """Whoever knows names."""

    def named(self, text: str, *, with_ids: bool = False) -> str:
        """``text`` with names in place of the IDs in it, or (``with_ids``) before them."""


class LineFormatter(logging.Formatter):
    """Formats records; ``redact`` takes the secrets out of their text, ``people`` puts names in place of user IDs."""

    def __init__(self, redact: Callable[[str], str], people: People | None = None) -> None:
        super().__init__("%(message)s")
        self._redact = redact
        self._people = people

    def describe(self, record: logging.LogRecord) -> Line:
        """The record as data; a traceback becomes part of its text."""
        text = super().format(record)
        if self._people is not None:
            # What went wrong is about somebody: then it has to be sure about whom.
            text = self._people.named(text, with_ids=record.levelno >= logging.WARNING)
        return Line(
            at=record.created,
            tag=tag_of(record),
            repo=escape_controls(str(getattr(record, "repo", "") or "")),
            text=escape_controls(self._redact(text)),
        )

    def format(self, record: logging.LogRecord) -> str:
        """The whole line."""
        return render(self.describe(record))


def render(line: Line) -> str:
    """``line`` as it stands in the log."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(line.at))
    repo = f"[{line.repo}] " if line.repo else ""
    return f"{stamp} {line.tag}  {repo}{line.text}"
