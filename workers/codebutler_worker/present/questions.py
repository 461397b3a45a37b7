"""What is said of the questions that an agent asks: one choice, several, or people's own words. Pure."""

from __future__ import annotations

import re

from codebutler.domain.message import Option
from codebutler.text.markup import plain
from codebutler_worker.present.lines import one_line, visible

MAX_OPTIONS = 10
"""Slack: boxes in one group."""
LABEL_CHARS = 75
"""Slack: the text of a button, and that of a box."""
DETAIL_CHARS = 200
_OPTION = re.compile(r"\s*(?:[-*•]|\d{1,2}[.)])\s+(?P<words>\S.*)")


def option(label: str, at: int, detail: str, *, several: bool) -> Option:
    """One of the answers as a button or, where ``several`` may be chosen, a box with little room for a detail."""
    room = LABEL_CHARS if several else DETAIL_CHARS
    return Option(
        one_line(visible(label), LABEL_CHARS) or f"Option {at + 1}", one_line(visible(detail), room)
    )


def options_in(body: str) -> tuple[str, tuple[str, ...]]:
    """A question and the options it ends with, as a list of two to ten short lines; no options in any other text."""
    lines = body.strip().splitlines()
    found: list[str] = []
    while lines and (match := _OPTION.fullmatch(lines[-1])):
        found.insert(0, one_line(match["words"], 1000))
        lines.pop()
    shown = all(len(option) <= LABEL_CHARS and option == visible(option) for option in found)
    question = "\n".join(lines).strip()
    if not question or not shown or not 2 <= len(found) <= MAX_OPTIONS:
        return body, ()
    return question, tuple(found)


def answered_by(who: str, answer: str) -> str:
    """Who (Markdown) answered what."""
    return f"💬 {who}: {plain(one_line(answer, 300))}"
