"""A code fence that an agent has left open: closed, or all that follows would be code. Pure."""

from __future__ import annotations

from codebutler.text.parser import parser


def closed(markdown: str) -> str:
    """``markdown``, and the end of a fence that is open at its end (one in a list or quote ends with that)."""
    if "```" not in markdown and "~~~" not in markdown:
        return markdown
    text = markdown.rstrip()
    last = parser().parse(f"{text}\n\nafter")[-1]
    return f"{text}\n{last.markup}" if last.type == "fence" else markdown
