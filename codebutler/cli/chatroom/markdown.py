"""Markdown for a terminal: headings, bold, code, lists, links. Pure.

The input has no control characters (``printable``): every escape in the result is ours. A link shows its
address. A chat's own markup in old messages reads the same way, except for its links, which are understood,
too.
"""

from __future__ import annotations

import re

LONGEST = 2_000
"""Characters of a line; a longer one stays as it is: looking for pairs takes quadratic time."""
_BOLD, _FAINT, _ITALIC, _UNDERLINE, _STRUCK, _CODE = "1", "2", "3", "4", "9", "36"
_END = "\x1b[0m"
_HEADING = re.compile(r"(#{1,6})\s+(\S.*)")
_RULE = re.compile(r"\s*([-*_])(?:\s*\1){2,}\s*")
_QUOTE = re.compile(r"\s{0,3}>\s?(.*)")
_ITEM = re.compile(r"(\s*)[-*+]\s+(?:\[([ xX])\]\s+)?(.*)")
_INLINE = re.compile(
    r"(?<!`)(?P<ticks>`++)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|\[(?P<label>[^\[\]]+)\]\((?P<target>[^\s()]+)\)"
    r"|<(?P<url>(?:https?://|mailto:)[^\s|<>]+)(?:\|(?P<name>[^<>]+))?>"
    r"|(?P<mark>\*\*|__|~~)(?=\S)(?P<strong>.+?)(?<=\S)(?P=mark)"
    r"|(?<![\w*])\*(?=[^\s*])(?P<star>[^*]+)(?<=\S)\*(?![\w*])"
    r"|(?<![\w_])_(?=[^\s_])(?P<low>[^_]+)(?<=\S)_(?![\w_])"
)


def rendered(line: str) -> str:
    """One line outside code blocks, with escapes."""
    if len(line) > LONGEST:
        return line
    if _RULE.fullmatch(line):
        return styled("─" * 40, _FAINT)
    if found := _HEADING.fullmatch(line):
        text = found[2].rstrip().rstrip("#").rstrip() or found[2]
        return styled(_inline(text), _BOLD, *([_UNDERLINE] if len(found[1]) == 1 else []))
    if found := _QUOTE.fullmatch(line):
        return f"{styled('│', _FAINT)} {_inline(found[1])}"
    if found := _ITEM.fullmatch(line):
        sign = "•" if found[2] is None else "☐" if found[2] == " " else "☑"
        return f"{found[1]}{sign} {_inline(found[3])}"
    return _inline(line)


def code(line: str) -> str:
    """One line of a code block."""
    return styled(line, _CODE)


def faint(line: str) -> str:
    """Transient lines: tools, progress, figures."""
    return styled(line, _FAINT)


def styled(text: str, *styles: str) -> str:
    """``text`` within the styles (ECMA-48, SGR); styles that end inside it are restarted."""
    begin = f"\x1b[{';'.join(styles)}m"
    return f"{begin}{text.replace(_END, f'{_END}{begin}')}{_END}" if text else ""


def _inline(text: str) -> str:
    return _INLINE.sub(_piece, text)


def _piece(found: re.Match[str]) -> str:
    if found["code"]:
        return styled(found["code"].strip() or found["code"], _CODE)
    if found["label"]:
        return _link(found["label"], found["target"])
    if found["url"]:
        return _link(found["name"] or found["url"], found["url"])
    if found["strong"]:
        return styled(_inline(found["strong"]), _STRUCK if found["mark"] == "~~" else _BOLD)
    # One star is bold in a chat's own marks and italic in Markdown.
    return styled(_inline(found["star"]), _BOLD) if found["star"] else styled(_inline(found["low"]), _ITALIC)


def _link(label: str, target: str) -> str:
    shown = styled(target, _UNDERLINE)
    if label.strip("`") in (target, target.removeprefix("mailto:")):
        return shown
    return f"{_inline(label)} ({shown})"
