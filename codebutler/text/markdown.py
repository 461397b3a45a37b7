"""CommonMark as chats read it: parsed into a tree of blocks, and split into parts that stand alone. Pure.

No fence stays open, no word is cut without need, no table row loses its header.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

BEGINNING_CHARS = 20_000
MIN_LIMIT = 40
_FENCE = re.compile(
    r"(?P<prefix>(?:[ \t]*>)*[ \t]*)(?P<item>(?:[-*+]|\d{1,9}[.)])[ \t]+)?"
    r"(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)"
)
_HEADING = re.compile(r" {0,3}#{1,6}\s")
BULLETS = "•◦▪"


@cache
def parser() -> MarkdownIt:
    """CommonMark with tables and strikethrough."""
    # Imported here to save memory in processes that parse nothing.
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def beginning(markdown: str) -> str:
    """The first block of a text, with the headings above it, within the first 20,000 characters."""
    start = markdown[:BEGINNING_CHARS]
    for token in parser().parse(start):
        if token.map and token.level == 0 and token.type not in ("heading_open", "heading_close", "hr"):
            return "\n".join(start.split("\n")[: token.map[1]])
    return start


def closed(markdown: str) -> str:
    """``markdown``, with an open fence at its end closed (one in a list or quote ends with that)."""
    text = markdown.rstrip()
    last = parser().parse(f"{text}\n\nafter")[-1]
    return f"{text}\n{last.markup}" if last.type == "fence" else markdown


def whole_tables(markdown: str, limit: int) -> str:
    """``markdown`` with every table of more than half of ``limit`` characters in pieces, each after an empty line.

    A part of ``limit`` characters can always end between pieces of that size. A text that needs no split stays as it
    is, and so does a table whose header or a row of which is too large.
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
    """The table's lines, with an empty line and the header again before each piece that would exceed ``limit``."""
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


def split_markdown(markdown: str, limit: int) -> list[str]:
    """``markdown`` in parts of at most ``limit`` characters, in order; only blank space is lost.

    Breaks between blocks if possible, else between lines, words, characters. A fence that is split is closed and opened
    again with its info string. Raises ValueError if ``limit`` is below 40.
    """
    if limit < MIN_LIMIT:
        raise ValueError(f"limit must be at least {MIN_LIMIT}")
    if len(markdown) <= limit:
        return [markdown] if markdown.strip() else []
    splitter = _Splitter(limit)
    for text in markdown.split("\n"):
        splitter.add(text + "\n")
    splitter.emit(len(splitter.lines))
    return splitter.parts


class _Fence(Struct, frozen=True):
    """An open code fence: how to close it and how to open it again."""

    prefix: str
    mark: str
    info: str

    @property
    def closing(self) -> str:
        return f"{self.prefix}{self.mark}\n"

    @property
    def opening(self) -> str:
        return f"{self.prefix}{self.mark}{self.info}\n"

    def outside_lists(self) -> _Fence:
        """The same fence in a new part, without the list item that its indentation belonged to."""
        return replace(self, prefix=self.prefix.rstrip(" \t") if ">" in self.prefix else "")


class _Line(Struct, frozen=True):
    """A line of the text with its newline; ``fence`` is the one open after it."""

    text: str
    fence: _Fence | None = None
    opens: bool = False
    closes: bool = False

    @property
    def cost(self) -> int:
        """The size of a part that ends with this line, with its fence closed."""
        return len(self.text) + (len(self.fence.closing) if self.fence else 0)

    @property
    def matters(self) -> bool:
        return not self.opens and not self.text.isspace()


class _Splitter(Struct):
    """Collects lines until the next would not fit, then emits those before the best break."""

    limit: int
    parts: list[str] = field(default_factory=list)
    lines: list[_Line] = field(default_factory=list)
    size: int = 0
    fence: _Fence | None = None

    def add(self, text: str) -> None:
        line = self._read(text)
        while self.size + line.cost > self.limit:
            if any(kept.matters for kept in self.lines):
                self.emit(self._best_break())
            elif any(not kept.opens for kept in self.lines):
                self._keep([kept for kept in self.lines if kept.opens])
            else:
                line = self._cut(line)
            line = self._moved(line)
        # Not anew: a part may have thousands of empty lines.
        self.lines.append(line)
        self.size += len(line.text)
        self.fence = line.fence

    def emit(self, count: int) -> None:
        """Make a part of the first ``count`` lines."""
        given, kept = self.lines[:count], self.lines[count:]
        fence = given[-1].fence if given else None
        text = "".join(line.text for line in given)
        if any(line.matters for line in given) or (given and not fence):
            if fence:
                text = text.rstrip("\n") + "\n" + fence.closing
            self._part(text)
        if fence:
            self.fence = fence.outside_lists()
            kept = [_Line(self.fence.opening, self.fence, opens=True)]
        self._keep(kept)

    def _part(self, text: str) -> None:
        lines = text.rstrip().split("\n")
        while lines and not lines[0].strip():
            del lines[0]
        if lines:
            self.parts.append("\n".join(lines))

    def _keep(self, lines: list[_Line]) -> None:
        self.lines = lines
        self.size = sum(len(line.text) for line in lines)

    def _read(self, text: str) -> _Line:
        match = _FENCE.match(text)
        fence = self.fence
        if fence and ">" in fence.prefix and not text.lstrip().startswith(">"):
            fence = None  # the quote has ended, and its fence with it
        if fence is None:
            return self._opening(match, text) if match else _Line(text)
        if match and _closes(match, fence):
            return _Line(fence.closing, closes=True)
        return _Line(text, fence)

    def _opening(self, match: re.Match[str], text: str) -> _Line:
        # A fence whose first line takes up much of a part could not be opened again: treated as text.
        if len(match[0]) >= self.limit // 4 or ("`" in match["mark"] and "`" in match["info"]):
            return _Line(text)
        prefix = match["prefix"] + " " * len(match["item"] or "")
        return _Line(text, _Fence(prefix, match["mark"], match["info"].rstrip()), opens=True)

    def _cut(self, line: _Line) -> _Line:
        """Make a part with as much of the line as fits; return the rest of the line."""
        room = self.limit - self.size - (line.cost - len(line.text)) - 1
        head = line.text[:room]
        words = max(head.rfind(" "), head.rfind("\t")) + 1
        if words * 3 > room and not head[:words].isspace():
            head = head[:words]
        self._keep([*self.lines, replace(line, text=head)])
        self.emit(len(self.lines))
        return replace(line, text=line.text[len(head) :])

    def _moved(self, line: _Line) -> _Line:
        """The line as it is in the part that starts now."""
        if line.closes and self.fence:
            return replace(line, text=self.fence.closing)
        return replace(line, fence=self.fence) if line.fence and not line.opens else line

    def _best_break(self) -> int:
        """How many of the lines to emit: up to a blank line, else to the end of a block, else all."""
        last = len(self.lines)
        while last > 1 and (self.lines[last - 1].opens or _HEADING.match(self.lines[last - 1].text)):
            last -= 1
        if last == 1 and _HEADING.match(self.lines[0].text):
            last = (
                len(self.lines) - self.lines[-1].opens or 1
            )  # nothing but headings: they follow one another
        filled, outside, blank = 0, [], []
        for at, line in enumerate(self.lines[:last], start=1):
            filled += len(line.text)
            if line.fence is None and filled * 3 >= self.limit:
                outside.append(at)
                if line.text.isspace():
                    blank.append(at)
        return (blank or outside or [last])[-1]


def _closes(match: re.Match[str], fence: _Fence) -> bool:
    same_quote = match["prefix"].count(">") == fence.prefix.count(">")
    return (
        same_quote
        and not match["item"]
        and not match["info"].strip()
        and match["mark"].startswith(fence.mark)
    )


class Node(Struct):
    """A block and the blocks in it; markdown-it bounds the nesting. ``type``: markdown-it's name for it, "" for the
    whole. ``inline``: the text tokens of a paragraph, a heading or a cell."""

    token: Token | None = None
    type: str = ""
    inline: list[Token] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)


def blocks(markdown: str) -> Sequence[Node]:
    """The blocks of a text. Never raises."""
    root = Node()
    path = [root]
    for token in parser().parse(markdown):
        if token.nesting < 0:
            path.pop()
            continue
        node = Node(token, token.type.removesuffix("_open"))
        path[-1].children.append(node)
        path[-1].inline += token.children or []
        if token.nesting > 0:
            path.append(node)
    return root.children


def plain(tokens: Sequence[Token]) -> str:
    """The text alone, unescaped."""
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
