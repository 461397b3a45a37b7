"""Slack's control characters: escaping what we send, reading what people wrote, and never pinging anybody.

Source: Slack's "Formatting text for app surfaces": only ``&``, ``<`` and ``>`` are special, and only as
``&amp;``, ``&lt;`` and ``&gt;``; ``<…>`` encloses links, mentions and specials.
"""

from __future__ import annotations

import re

ZERO_WIDTH_SPACE = "\u200b"

# `<!-- …` and `<!doctype` are HTML, not Slack. Escapes and entities are what Markdown would decode later.
_CONTROL = re.compile(
    r"(?P<open><|&lt;|&#0*60;|&#x0*3c;)(?=\\?(?:@|!(?!--|doctype\b)|#[a-z0-9]|&(?:#|commat|excl|num)))",
    re.IGNORECASE,
)
_BROADCAST = re.compile(r"(?<![\w.])@(?=(?:channel|here|everyone)\b)", re.IGNORECASE)
_ENCLOSED = re.compile(r"<([^<>\n]+)>")


def escape(text: str) -> str:
    """Plain text as Slack shows it literally."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def unescape(text: str) -> str:
    """What a person saw and typed, from the text of a Slack event.

    Mentions become ``@U1``, channels ``#name``, links ``label (url)`` or the bare address.
    """
    plain = _ENCLOSED.sub(_plain, text)
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def neutralise(text: str) -> str:
    """The same text to read, but no mention in it reaches anybody: not ``<@U1>``, not ``@channel``.

    For plain text or Markdown, before ``escape``. Doing it twice changes nothing more.
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
