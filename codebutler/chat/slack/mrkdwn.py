"""Markdown (as agents write it) to mrkdwn (as Slack shows it).

mrkdwn has bold, italics, strike, code, fences without a language, quotes and links; the rest is drawn with
characters. Everything is escaped, also inside code, and nothing pings. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from codebutler.chat.slack.escape import ZERO_WIDTH_SPACE
from codebutler.chat.slack.inline import inline, safe
from codebutler.text.markdown import BULLETS, Node, blocks, table_lines

RULE = "─" * 20
INDENT = "    "
CUT = "\n…"
FENCE_END = "\n```"

_TASK = re.compile(r"\[([ xX])\](?= )")


def to_mrkdwn(markdown: str) -> str:
    """The text of a Slack message that shows ``markdown``. Never raises; any input is safe to post."""
    return "\n".join(_spaced(blocks(markdown), depth=0)).strip("\n")


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


def _spaced(nodes: Sequence[Node], depth: int, tight: bool = False) -> list[str]:
    """The blocks' lines, with an empty line between two blocks unless they are a tight list's."""
    lines: list[str] = []
    for node in nodes:
        block = _block(node, depth)
        if lines and block and not tight:
            lines.append("")
        lines += block
    return lines


def _block(node: Node, depth: int) -> list[str]:
    token = node.token
    assert token is not None
    match node.type:
        case "paragraph":
            return inline(node.inline).split("\n")
        case "heading":
            return [inline(node.inline, bold=True)]
        case "fence" | "code_block":
            return _fence(token.content)
        case "bullet_list" | "ordered_list":
            return _list(node, depth)
        case "blockquote":
            return [f"> {line}".rstrip() for line in _spaced(node.children, depth)]
        case "table":
            return _fence("\n".join(table_lines(node)))
        case "hr":
            return [RULE]
        case _:
            return safe(token.content).split("\n")


def _fence(code: str) -> list[str]:
    # A fence inside the code would end this one early.
    guarded = code.replace("```", "``" + ZERO_WIDTH_SPACE + "`").rstrip("\n")
    return ["```", *safe(guarded).split("\n"), "```"]


def _list(node: Node, depth: int) -> list[str]:
    assert node.token is not None
    ordered = node.type == "ordered_list"
    number = int(node.token.attrs.get("start", 1))
    lines: list[str] = []
    for offset, item in enumerate(node.children):
        mark = f"{number + offset}." if ordered else BULLETS[depth % len(BULLETS)]
        lines += _item(item, mark, depth)
    return lines


def _item(item: Node, mark: str, depth: int) -> list[str]:
    body = _spaced(item.children, depth + 1, tight=True)
    if not body:
        return [mark]
    if task := _TASK.match(body[0]):
        mark = "☐" if task[1] == " " else "☑"
        body[0] = body[0][task.end() + 1 :]
    return [f"{mark} {body[0]}", *(INDENT + line if line else "" for line in body[1:])]
