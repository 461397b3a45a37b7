"""The Markdown that we write ourselves: foreign text in it shows as it is, and a line break is one. Pure.

A small part of CommonMark: escapes, code, fences, **bold**, _italics_, quotes and links. A link to ``person:ID`` or
``channel:ID`` names somebody or a channel; escaped as foreign text is, none can be forged in it. A worker does not know
the workspace's address: for a link to a message it writes the one that any workspace answers to, and the parent puts
the right one in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

ZERO_WIDTH_SPACE = "\u200b"
FENCE = "```"
CUT_FENCE = f"`{ZERO_WIDTH_SPACE}`{ZERO_WIDTH_SPACE}`"
PERSON, CHANNEL = "person:", "channel:"
ID = r"(?:[A-Z][A-Z0-9]{1,30}|tg:[1-9][0-9]{0,18})"
NAMED = re.compile(rf"(?<!\\)\[@({ID})\]\({PERSON}\1\)")
"""Somebody who is named, as ``person`` does."""

Kind = Literal["text", "code", "fence", "bold", "italic", "quote", "link"]

_SPECIAL = re.compile(r"[\\`*_\[\]<&~|]|(?m:^)(?P<space>[ \t]*)(?:[#>+=-]|(?P<number>\d+)(?=[.)]))")
_HALF_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_SPAN = re.compile(
    r"(?m:^)```[^\n`]*\n(?P<fence>.*?)\n```(?=\n|\Z)"
    r"|\\(?P<sign>[!-/:-@\[-`{-~])"
    r"|(?<!`)(?P<ticks>`{1,3}+)(?!`)(?P<code>[^\n]{0,4000}?[^`\n])(?P=ticks)(?!`)"
    r"|\[(?P<label>(?:\\.|[^\\\[\]\n]|\[[^\\\[\]\n]*+\])*+)\]\((?P<url>[^\s()<>]{1,2000})\)"
    r"|\*\*(?P<bold>(?:\\.|`[^`\n]++`|[^\\*`\n])++)\*\*"
    r"|(?<!\w)_(?P<italic>(?:\\.|`[^`\n]++`|[^\\_`\n])++)_(?!\w)"
    r"|(?m:^)(?P<quote>> ?)",
    re.DOTALL,
)
ANY_WORKSPACE = "https://slack.com/archives/"
_TELEGRAM = re.compile(
    r"(?:\[(?P<label>[^\[\]]*)\]\()?https://slack\.com/archives/tg:(?P<chat>-?\d+)(?:/p\d0*(?P<message>\d+))?(?(label)\))"
)
_MESSAGE = re.compile(r"/archives/([CG][A-Z0-9]+)/p(\d{10})(\d{6})")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of our Markdown. The ``text`` of bold, italics and a link's label is Markdown again."""

    kind: Kind
    text: str
    url: str = ""


def plain(text: str) -> str:
    """Foreign text as Markdown that shows it literally."""
    return _SPECIAL.sub(_escaped, text)


def code(text: str) -> str:
    """Foreign text in one line as inline code: no backtick ends it early."""
    return f"`{text.replace('`', chr(39))}`"


def fence(text: str) -> str:
    """Foreign text as a block of code that nothing in it ends early."""
    return f"{FENCE}\n{text.replace(FENCE, CUT_FENCE)}\n{FENCE}"


def person(user: str) -> str:
    """Somebody, as the chat names them."""
    return f"[@{user}]({PERSON}{user})" if re.fullmatch(ID, user) else plain(user)


def channel(channel_id: str) -> str:
    """A channel, as the chat names it."""
    return f"[#{channel_id}]({CHANNEL}{channel_id})"


def people_in(markdown: str) -> tuple[str, ...]:
    """Whom it names."""
    return tuple(NAMED.findall(markdown))


def clip(markdown: str, limit: int) -> str:
    """At most ``limit`` characters, without half an escape at the cut."""
    if len(markdown) <= limit:
        return markdown
    return _HALF_ESCAPE.sub(lambda found: found[0][:-1], markdown[: limit - 1]) + "…"


def spans(markdown: str) -> Iterator[Span]:
    """The pieces in their order; text that escapes interrupt is one."""
    text, done = "", 0
    for found in _SPAN.finditer(markdown):
        text += markdown[done : found.start()]
        done = found.end()
        kind = found.lastgroup
        if kind == "sign":
            text += found["sign"]
            continue
        if text:
            yield Span("text", text)
            text = ""
        match kind:
            case "url":
                yield Span("link", found["label"], found["url"])
            case "fence" | "code" | "bold" | "italic" | "quote":
                yield Span(kind, found[kind])
    if text := text + markdown[done:]:
        yield Span("text", text)


def bare(markdown: str) -> str:
    """Without escapes, its marks as they are: for a reader who sees the source."""
    return re.sub(r"(`+)(?:(?!\1).|\n)+?\1|\\([!-/:-@\[-`{-~])", lambda found: found[2] or found[0], markdown)


def words(markdown: str) -> str:
    """The words alone, as somebody reads them."""
    return "".join(
        words(span.text) if span.kind in ("bold", "italic", "link") else span.text
        for span in spans(markdown)
        if span.kind != "quote"
    )


def _escaped(found: re.Match[str]) -> str:
    if found["number"]:
        return f"{found[0]}\\"
    return f"{found['space'] or ''}\\{found[0][-1]}"


def message_url(channel: str, ts: str) -> str:
    """A message's address, in whatever workspace."""
    return f"{ANY_WORKSPACE}{channel}/p{ts.replace('.', '')}"


def message_link(channel: str, ts: str, label: str) -> str:
    """A message as a link; ``label`` is Markdown already."""
    return f"[{label}]({message_url(channel, ts)})"


def with_real_links(text: str, workspace_url: str) -> str:
    """The text with every link to a message leading into the workspace at ``workspace_url`` (auth.test's ``url``), or
    into its Telegram chat. Where that gives its messages no address, the label alone is left."""
    text = _TELEGRAM.sub(_in_telegram, text)
    return text.replace(ANY_WORKSPACE, f"{workspace_url.rstrip('/')}/archives/") if workspace_url else text


def _in_telegram(found: re.Match[str]) -> str:
    """Only a supergroup's messages have an address."""
    label, chat, message = found["label"], found["chat"], found["message"]
    if not chat.startswith("-100"):
        return label or ""
    address = f"https://t.me/c/{chat.removeprefix('-100')}/{message or 1}"
    return address if label is None else f"[{label}]({address})"


def relinked(text: str, where: Callable[[str, str], str]) -> str:
    """The text with its links to messages leading to where they stand: ``where`` tells it of a channel and a ts."""

    def moved(found: re.Match[str]) -> str:
        return found[0].replace(found[1], where(found[1], f"{found[2]}.{found[3]}"))

    return _MESSAGE.sub(moved, text)
