"""A code fence that an agent has left open: closed, or all that follows would be code. Pure."""

from __future__ import annotations

import re

from codebutler.text.markdown import parser

_INDENT = re.compile(r"(?P<quote>(?:[ \t]*>)*[ \t]*)(?P<item>(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*)")


def closed(markdown: str) -> str:
    """``markdown``, and the end of a fence that is open at its end."""
    if "```" not in markdown and "~~~" not in markdown:
        return markdown
    text = markdown.rstrip()
    lines = text.split("\n")
    fences = [token for token in parser().parse(text) if token.type == "fence"]
    if not fences or fences[-1].map is None or fences[-1].map[1] < len(lines):
        return markdown
    start, mark = fences[-1].map[0], fences[-1].markup
    last = lines[-1].strip(" \t>")
    if len(lines) - 1 > start and len(last) >= len(mark) and set(last) == {mark[0]}:
        return markdown
    # The end stands where the beginning does: in the same quote, as deep in the list.
    indent = _INDENT.match(lines[start])
    quote, item = (indent["quote"], indent["item"]) if indent else ("", "")
    return f"{text}\n{quote}{' ' * len(item)}{mark}"
