"""The marks within a line: Markdown's inline tokens to mrkdwn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from markdown_it.token import Token

from codebutler.chat.slack.escape import ZERO_WIDTH_SPACE, escape, neutralise
from codebutler.text.markdown import plain

MARKS = {"strong": "*", "em": "_", "s": "~"}
LINK_SCHEMES = frozenset({"http", "https", "mailto"})
BACKTICK = "ˋ"  # mrkdwn has no way to show a backtick inside inline code

_LOOKS_LIKE_ADDRESS = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:|www\.|[\w-]+(?:\.[\w-]+)+(?:[/:?#]|\s*$))", re.I)


def safe(text: str) -> str:
    """Plain text, shown literally and pinging nobody."""
    return escape(neutralise(text))


def inline(tokens: Sequence[Token], bold: bool = False) -> str:
    """One paragraph's tokens as mrkdwn; ``bold`` draws all of it bold (a heading)."""
    return _Inline(bold).render(tokens)


def link(url: str, label: str) -> str:
    """A link that cannot pretend to lead elsewhere; both arguments are unescaped."""
    label = " ".join(label.split())
    if urlsplit_scheme(url) not in LINK_SCHEMES:
        return safe(f"{label} ({url})" if label and label != url else url)
    target = escape(re.sub(r"[|<>\s]", lambda match: f"%{ord(match[0]):02X}", url))
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


class _Inline:
    """Walks the tokens once. Slack sees a mark only at the edge of a word, so some get a zero-width space."""

    def __init__(self, bold: bool) -> None:
        self._out: list[str] = []
        self._open: list[str] = ["*"] if bold else []
        self._bold = bold
        self._edge = False

    def render(self, tokens: Sequence[Token]) -> str:
        at = 0
        while at < len(tokens):
            if tokens[at].type == "link_open":
                at = self._link(tokens, at)
            else:
                self._token(tokens[at])
                at += 1
        text = "".join(self._out)
        return f"*{text}*" if self._bold and text.strip() else text

    def _token(self, token: Token) -> None:
        name, _, side = token.type.rpartition("_")
        if name in MARKS:
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
