"""Parsed Markdown as a tree of blocks, and what every chat draws of it in the same way. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token

from codebutler.text.markdown import parser

BULLETS = "•◦▪"


@dataclass
class Node:
    """A block and the blocks in it; markdown-it bounds the nesting."""

    token: Token | None = None
    children: list[Node] = field(default_factory=list)

    @property
    def type(self) -> str:
        """markdown-it's name for it, "" for the whole."""
        return self.token.type.removesuffix("_open") if self.token else ""

    @property
    def inline(self) -> list[Token]:
        """What a paragraph, a heading or a cell says."""
        return [child for part in self.children if part.token for child in part.token.children or []]


def blocks(markdown: str) -> Sequence[Node]:
    """The blocks of a text. Never raises."""
    root = Node()
    path = [root]
    for token in parser().parse(markdown):
        if token.nesting < 0:
            path.pop()
            continue
        node = Node(token)
        path[-1].children.append(node)
        if token.nesting > 0:
            path.append(node)
    return root.children


def plain(tokens: Sequence[Token]) -> str:
    """The words alone, unescaped."""
    return "".join(
        " " if token.type in ("softbreak", "hardbreak") else plain(token.children or []) or token.content
        for token in tokens
    )


def table_lines(table: Node) -> list[str]:
    """A table in a fixed-width font."""
    rows = [[plain(cell.inline) for cell in row.children] for part in table.children for row in part.children]
    widths = [max(_width(cell) for cell in column) for column in zip(*rows, strict=False)]
    header, *body = [
        " | ".join(
            cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)
        ).rstrip()
        for row in rows
    ]
    return [header, "-+-".join("-" * width for width in widths), *body]


def _width(text: str) -> int:
    """Columns in a fixed-width font (Unicode TR 11)."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
