"""Markdown (as agents write it) to mrkdwn (as Slack shows it).

mrkdwn has bold, italics, strike, code, fences without a language, quotes and links; the rest is drawn with
characters. Everything is escaped, also inside code, and nothing pings. Only ``&``, ``<`` and
``>`` are special, and ``<…>`` encloses links, mentions and specials (Slack: Formatting text for app surfaces). Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from urllib.parse import urlsplit

from markdown_it.token import Token
from msgspec import Struct, field

from codebutler.text.markdown import BULLETS, Node, blocks, plain, table_lines

RULE = "─" * 20
INDENT = "    "
CUT = "\n…"
FENCE_END = "\n```"

_TASK = re.compile(r"\[([ xX])\](?= )")
ZERO_WIDTH_SPACE = "\u200b"
# `<!-- …` and `<!doctype` are HTML, not Slack. Escapes and entities are what Markdown would decode later.
_CONTROL = re.compile(
    r"(?P<open><|&lt;|&#0*60;|&#x0*3c;)(?=\\?(?:@|!(?!--|doctype\b)|#[a-z0-9]|&(?:#|commat|excl|num)))",
    re.IGNORECASE,
)
_BROADCAST = re.compile(r"(?<![\w.])@(?=(?:channel|here|everyone)\b)", re.IGNORECASE)
_ENCLOSED = re.compile(r"<([^<>\n]+)>")
MARKS = {"strong": "*", "em": "_", "s": "~"}
LINK_SCHEMES = frozenset({"http", "https", "mailto"})
BACKTICK = "ˋ"  # mrkdwn has no way to show a backtick inside inline code
_LOOKS_LIKE_ADDRESS = re.compile(
    r"\s*(?:https?:|[a-z][a-z0-9+.-]*:(?=\S)|www\.|[\w-]+(?:\.[\w-]+)+(?:[/:?#]|\s*$))", re.I
)


def to_mrkdwn(markdown: str) -> str:
    """The text of a Slack message that shows ``markdown``. Never raises; any input is safe to post."""
    return "\n".join(_lines(blocks(markdown), depth=0)).strip("\n")


def clip_mrkdwn(text: str, limit: int) -> str:
    """At most ``limit`` characters of our mrkdwn: no half entity, no half link, no open fence at the cut."""
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


def _lines(nodes: Sequence[Node], depth: int, tight: bool = False) -> list[str]:
    """The blocks' lines, with an empty line between two blocks unless they are a tight list's."""
    lines: list[str] = []
    for node in nodes:
        content = node.token.content if node.token is not None else ""
        match node.type:
            case "paragraph":
                block = _Inline().render(node.inline).split("\n")
            case "heading":
                text = _Inline(_open=["*"]).render(node.inline)
                block = [f"*{text}*" if text.strip() else text]
            case "fence" | "code_block":
                block = _fence(content)
            case "bullet_list" | "ordered_list":
                block = _list(node, depth)
            case "blockquote":
                block = [f"> {line}".rstrip() for line in _lines(node.children, depth)]
            case "table":
                block = _fence("\n".join(table_lines(node)))
            case "hr":
                block = [RULE]
            case _:
                block = safe(content).split("\n")
        if lines and block and not tight:
            lines.append("")
        lines += block
    return lines


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
    body = _lines(item.children, depth + 1, tight=True)
    if not body:
        return [mark]
    if task := _TASK.match(body[0]):
        mark = "☐" if task[1] == " " else "☑"
        body[0] = body[0][task.end() + 1 :]
    return [f"{mark} {body[0]}", *(INDENT + line if line else "" for line in body[1:])]


def unescape(text: str) -> str:
    """The text of a Slack event as the person saw and typed it.

    Mentions become ``@U1``, channels ``#name``, links ``label (url)`` or the bare address.
    """
    plain = _ENCLOSED.sub(_plain, text)
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def neutralise(text: str) -> str:
    """The same text to read, but its mentions notify nobody: not ``<@U1>``, not ``@channel``.

    For plain text or Markdown, before it is escaped. Idempotent.
    """
    guarded = _CONTROL.sub(lambda match: match["open"] + ZERO_WIDTH_SPACE, text)
    return _BROADCAST.sub("@" + ZERO_WIDTH_SPACE, guarded)


def _plain(match: re.Match[str]) -> str:
    target, _, label = match[1].partition("|")
    if target.startswith("@"):
        return target
    if target.startswith("#"):
        return f"#{label or target[1:]}"
    if target.startswith("!"):
        return _special(target[1:], label)
    if not label or label == target:
        return target
    # Slack turns a typed "example.com" into <http://example.com|example.com>.
    bare = target.removeprefix("mailto:").removeprefix("https://").removeprefix("http://").rstrip("/")
    return label if label.rstrip("/") == bare else f"{label} ({target})"


def _special(word: str, label: str) -> str:
    if word.startswith("date^"):
        return label
    name = label or word.partition("^")[0]
    return name if name.startswith("@") else f"@{name}"


def safe(text: str) -> str:
    """Plain text, shown literally and pinging nobody."""
    return escape(neutralise(text), quote=False)


def link(url: str, label: str) -> str:
    """A link that cannot hide its target; both arguments are unescaped."""
    label = " ".join(label.split())
    if urlsplit_scheme(url) not in LINK_SCHEMES:
        return safe(f"{label} ({url})" if label and label != url else url)
    target = escape(re.sub(r"[|<>\s]", lambda match: f"%{ord(match[0]):02X}", url), quote=False)
    if not label or label in (url, url.removeprefix("mailto:")):
        return f"<{target}>"
    if _LOOKS_LIKE_ADDRESS.match(label):
        return f"{safe(label)} (<{target}>)"
    return f"<{target}|{safe(label)}>"


def urlsplit_scheme(url: str) -> str:
    """The scheme in lower case, empty if there is none or the address is malformed."""
    try:
        return urlsplit(url).scheme.lower()
    except ValueError:
        return ""


class _Inline(Struct):
    """Walks the tokens once. Slack sees a mark only at the edge of a word, so some get a zero-width space.
    ``_open``: the marks that are open; ``_edge``: one was just closed."""

    _out: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _edge: bool = False

    def render(self, tokens: Sequence[Token]) -> str:
        at = 0
        while at < len(tokens):
            token = tokens[at]
            at += 1
            name, _, side = token.type.rpartition("_")
            if token.type == "link_open":
                at = self._link(tokens, at - 1)
            elif name in MARKS:
                self._mark(MARKS[name], side == "open")
            elif token.type == "code_inline":
                self._write("`" + safe(token.content.replace("`", BACKTICK)) + "`")
            elif token.type in ("softbreak", "hardbreak"):
                # A mark that crosses a line end is not seen by Slack.
                self._write(" " if self._open else "\n")
            elif token.type == "image":
                self._write(link(str(token.attrs.get("src", "")), plain(token.children or []) or "image"))
            else:
                self._write(safe(token.content))
        return "".join(self._out)

    def _link(self, tokens: Sequence[Token], start: int) -> int:
        # Links do not nest, so the next close is this one's.
        end = next(i for i in range(start, len(tokens)) if tokens[i].type == "link_close")
        self._write(link(str(tokens[start].attrs.get("href", "")), plain(tokens[start + 1 : end])))
        return end + 1

    def _mark(self, mark: str, opens: bool) -> None:
        if opens:
            if mark not in self._open:
                if self._out and self._out[-1][-1:].isalnum():
                    self._out.append(ZERO_WIDTH_SPACE)
                self._out.append(mark)
            self._open.append(mark)
        else:
            self._open.remove(mark)
            if mark not in self._open:
                self._out.append(mark)
                self._edge = True

    def _write(self, text: str) -> None:
        if self._edge and text[:1].isalnum():
            self._out.append(ZERO_WIDTH_SPACE)
        if text:
            self._edge = False
            self._out.append(text)
