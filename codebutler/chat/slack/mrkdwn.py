"""Markdown (as agents write it) to mrkdwn (as Slack shows it).

mrkdwn has bold, italics, strike, code, fences without a language, quotes and links; the rest is drawn with
characters. Everything is escaped, also inside code, and nothing pings. Pure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

from markdown_it.token import Token

from codebutler.chat.slack.escape import ZERO_WIDTH_SPACE
from codebutler.chat.slack.inline import inline, plain, safe
from codebutler.text.markdown import parser

BULLETS = "•◦▪"
RULE = "─" * 20
INDENT = "    "
CUT = "\n…"
FENCE_END = "\n```"

_TASK = re.compile(r"\[([ xX])\](?= )")


def to_mrkdwn(markdown: str) -> str:
    """The text of a Slack message that shows ``markdown``. Never raises; any input is safe to post."""
    return "\n".join(_spaced(_tree(parser().parse(markdown)).children, depth=0)).strip("\n")


def clip_mrkdwn(text: str, limit: int) -> str:
    """At most ``limit`` characters of mrkdwn of ours: no half entity, no half link, no open fence at the cut."""
    if len(text) <= limit:
        return text
    cut = text[: limit - len(CUT) - len(FENCE_END)]
    line = cut.rfind("\n")
    if line > len(cut) // 2:
        cut = cut[:line]
    opened = max(cut.rfind("&"), cut.rfind("<"))
    if opened > max(cut.rfind(";"), cut.rfind(">")):
        cut = cut[:opened]
    return cut.rstrip() + (FENCE_END if cut.count("```") % 2 else "") + CUT


@dataclass
class _Node:
    """A block and the blocks in it; markdown-it bounds the nesting."""

    token: Token | None = None
    children: list[_Node] = field(default_factory=list)

    @property
    def type(self) -> str:
        return self.token.type.removesuffix("_open") if self.token else ""


def _tree(tokens: Sequence[Token]) -> _Node:
    root = _Node()
    path = [root]
    for token in tokens:
        if token.nesting < 0:
            path.pop()
            continue
        node = _Node(token)
        path[-1].children.append(node)
        if token.nesting > 0:
            path.append(node)
    return root


def _spaced(nodes: Sequence[_Node], depth: int, tight: bool = False) -> list[str]:
    """The blocks' lines, with an empty line between two blocks unless they are a tight list's."""
    lines: list[str] = []
    for node in nodes:
        block = _block(node, depth)
        if lines and block and not tight:
            lines.append("")
        lines += block
    return lines


def _block(node: _Node, depth: int) -> list[str]:
    token = node.token
    assert token is not None
    match node.type:
        case "paragraph":
            return inline(_inline_tokens(node)).split("\n")
        case "heading":
            return [inline(_inline_tokens(node), bold=True)]
        case "fence" | "code_block":
            return _fence(token.content)
        case "bullet_list" | "ordered_list":
            return _list(node, depth)
        case "blockquote":
            return [f"> {line}".rstrip() for line in _spaced(node.children, depth)]
        case "table":
            return _fence("\n".join(_table(node)))
        case "hr":
            return [RULE]
        case _:
            return safe(token.content).split("\n")


def _inline_tokens(node: _Node) -> list[Token]:
    return [child for part in node.children if part.token for child in part.token.children or []]


def _fence(code: str) -> list[str]:
    # A fence inside the code would end this one early.
    guarded = code.replace("```", "``" + ZERO_WIDTH_SPACE + "`").rstrip("\n")
    return ["```", *safe(guarded).split("\n"), "```"]


def _list(node: _Node, depth: int) -> list[str]:
    assert node.token is not None
    ordered = node.type == "ordered_list"
    number = int(node.token.attrs.get("start", 1))
    lines: list[str] = []
    for offset, item in enumerate(node.children):
        mark = f"{number + offset}." if ordered else BULLETS[depth % len(BULLETS)]
        lines += _item(item, mark, depth)
    return lines


def _item(item: _Node, mark: str, depth: int) -> list[str]:
    body = _spaced(item.children, depth + 1, tight=True)
    if not body:
        return [mark]
    if task := _TASK.match(body[0]):
        mark = "☐" if task[1] == " " else "☑"
        body[0] = body[0][task.end() + 1 :]
    return [f"{mark} {body[0]}", *(INDENT + line if line else "" for line in body[1:])]


def _table(node: _Node) -> list[str]:
    rows = [
        [plain(_inline_tokens(cell)) for cell in row.children]
        for part in node.children
        for row in part.children
    ]
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
