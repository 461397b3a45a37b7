"""Code, people and untrusted text as Markdown. Pure."""

from __future__ import annotations

import html
import unicodedata

from codebutler.domain.refs import PersonRef
from codebutler.text import markup
from codebutler.text.markup import fence, plain
from codebutler.text.wording import LINE_LIMIT, one_line

_CONTROLS = frozenset(map(chr, (*range(32), 127))) - {"\n", "\t"}
# Letters, marks and symbols by category. Not U+FE0E and U+FE0F, which choose between a sign and an emoji.
_FILLERS = frozenset(
    map(chr, (0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F, 0x2800, 0x3164, 0xFFA0,
              *range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0)))
)  # fmt: skip

FENCE_CHARS = 3500


def code(text: str, limit: int = LINE_LIMIT) -> str:
    """Untrusted text as one line of inline code."""
    return markup.code(one_line(text, limit))


def person(user: PersonRef, name: str = "") -> str:
    """Somebody's name; if only the ID is known, the chat shows its own."""
    return plain(name) if name and name != user else markup.person(user)


def visible(text: str) -> str:
    """Escapes control, format and separator characters and fillers, which are invisible or misleading."""
    return "".join(
        f"\\u{ord(each):04x}" if (not each.isascii() and _misleads(each)) or each in _CONTROLS else each
        for each in text
    )


def _misleads(sign: str) -> bool:
    """Whether the character is invisible, an unusual space, or in private use."""
    kind = unicodedata.category(sign)
    return kind in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs") or sign in _FILLERS


def fenced(text: str, limit: int = FENCE_CHARS) -> tuple[str, int]:
    """Untrusted text as a code block of at most about ``limit`` characters, and how many characters it leaves
    out."""
    (block,), hidden = fenced_parts(text, limit, most=1)
    return block, hidden


def fenced_parts(text: str, limit: int, most: int) -> tuple[list[str], int]:
    """The same as at most ``most`` code blocks, and how many characters they leave out together. A block ends
    at the end of a line or word if possible; an ellipsis marks one that is cut within a line, and the last
    one if more is left out."""
    blocks: list[str] = []
    rest = text
    while (rest or not blocks) and len(blocks) < most:
        shown = _fitting(rest, limit)
        cut = len(shown) < len(rest) and not (shown.endswith("\n") and len(blocks) + 1 < most)
        rest = rest[len(shown) :]
        # For the redactor, too: the text before it may be half a key.
        blocks.append(fence(f"{shown.strip(chr(10))}{'…' if cut else ''}"))
    return blocks, len(rest)


def _fitting(text: str, limit: int) -> str:
    """The start of the text that fits a code block."""
    shown = text[:limit]
    while (size := cost(shown)) > limit:
        shown = shown[: len(shown) * limit // size]
    if len(shown) < len(text):
        for end in ("\n", " "):
            if (at := shown.rfind(end) + 1) > len(shown) // 2:
                return shown[:at]
    return shown


def cost(code: str) -> int:
    """Its length in a chat that escapes code as HTML does."""
    return len(html.escape(fence(code.strip("\n")), quote=False)) - len(fence(""))
