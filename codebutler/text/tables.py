"""Long tables as several shorter ones, each with the header: a row that a split parts from it means nothing. Pure."""

from __future__ import annotations

from codebutler.text.parser import parser


def whole_tables(markdown: str, limit: int) -> str:
    """``markdown`` with every table of more than half of ``limit`` characters in pieces, after an empty line each.

    Between pieces of that size a part of ``limit`` characters can always end. A text that needs no split, and a
    table whose header or a row of which takes too much, stays as it is.
    """
    if len(markdown) <= limit or "|" not in markdown:
        return markdown
    lines = markdown.split("\n")
    found = [
        token.map for token in parser().parse(markdown) if token.type == "table_open" and not token.level
    ]
    for start, end in reversed([place for place in found if place]):
        pieces = _pieces(lines[start : start + 2], lines[start + 2 : end], limit // 2)
        before = [""] if start and lines[start - 1].strip() else []
        lines[start:end] = [*before, *pieces]
    return "\n".join(lines)


def _pieces(header: list[str], rows: list[str], limit: int) -> list[str]:
    """The table's lines, the header again and an empty line wherever it would grow longer than ``limit``."""
    head = sum(len(line) + 1 for line in header)
    if head + max((len(row) + 1 for row in rows), default=0) > limit:
        return [*header, *rows]
    lines, size = list(header), head
    for row in rows:
        if size + len(row) + 1 > limit:
            lines += ["", *header]
            size = head
        lines.append(row)
        size += len(row) + 1
    return lines
