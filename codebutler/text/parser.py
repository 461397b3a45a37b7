"""CommonMark as chats read it. Pure."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

BEGINNING_CHARS = 20_000


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough."""
    # Not for the memory of who has nothing to parse.
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def beginning(markdown: str) -> str:
    """The first block of a text, with the headings above it; what there is of it within 20,000 characters."""
    start = markdown[:BEGINNING_CHARS]
    for token in parser().parse(start):
        if token.map and token.level == 0 and token.type not in ("heading_open", "heading_close", "hr"):
            return "\n".join(start.split("\n")[: token.map[1]])
    return start
