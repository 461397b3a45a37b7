"""What came from a server as text for a model: which kinds can be read, in which characters, and without markup."""

from __future__ import annotations

import codecs
import re

from codebutler_worker.internet.urls import PageRefusedError

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_TEXTUAL = re.compile(
    r"utf-?(8|16|32)\b|us-?ascii|ascii|iso-?8859|latin|windows-12|cp(12|8|9)|koi8|shift_?jis|euc|gb|big5|iso2022|mac",
    re.IGNORECASE,
)
"""Python has codecs that are no character sets, and some that take minutes for what a server sends."""
_HTML = ("text/html", "application/xhtml+xml")
_PLAIN = re.compile(r"text/[\w.+-]+|application/([\w.-]+\+)?(json|xml|yaml|toml|javascript|x-sh)")
_BLANKS = re.compile(r"\n{3,}")
_DATA = re.compile(r"\(data:[^)\s]{100,}\)")


def readable(content_type: str) -> bool:
    """Whether a model can read what has this type (a Content-Type header); nothing said is taken for HTML."""
    kind = kind_of(content_type)
    return not kind or kind in _HTML or _PLAIN.fullmatch(kind) is not None


def kind_of(content_type: str) -> str:
    """The type without its parameters."""
    return content_type.partition(";")[0].strip().lower()


def text_of(content: bytes, content_type: str) -> str:
    """The content as text; HTML becomes Markdown. Raises PageRefusedError if it cannot be read."""
    text = _decoded(content, content_type)
    if kind_of(content_type) in (*_HTML, "") and "<" in text:
        text = _markdown(text)
    return _BLANKS.sub("\n\n", _DATA.sub("(data)", text.replace("\x00", ""))).strip()


def _decoded(content: bytes, content_type: str) -> str:
    named = re.search(r"charset\s*=\s*\"?([\w.:-]{1,40})", content_type, re.IGNORECASE)
    inside = _CHARSET.search(content[:2048])
    charset = named[1] if named else inside[1].decode() if inside else "utf-8"
    if not _TEXTUAL.match(charset):
        charset = "utf-8"
    try:
        return codecs.lookup(charset).decode(content, "replace")[0]
    except (LookupError, UnicodeError):
        return content.decode("utf-8", "replace")


def _markdown(html: str) -> str:
    from html_to_markdown import convert  # 20 MB of it on disk, and few workers ever fetch a page

    try:
        return convert(html).content or ""
    except Exception as error:  # noqa: BLE001 - a library of another language; whatever it says, the page is at fault
        raise PageRefusedError(f"the page's HTML cannot be read ({type(error).__name__})") from None
