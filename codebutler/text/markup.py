"""The Markdown that we write ourselves: foreign text in it is shown literally, and a line break is one. Pure.

A small part of CommonMark: escapes, code, fences, **bold**, _italics_, quotes and links. A link to ``person:ID`` or
``channel:ID`` mentions a person or a channel, one to ``message:CHANNEL/REF`` leads to a message, whose address the
parent finds when it sends the text. Foreign text is escaped, so it cannot forge one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal

from msgspec import Struct

from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef

ZERO_WIDTH_SPACE = "\u200b"
FENCE = "```"
CUT_FENCE = f"`{ZERO_WIDTH_SPACE}`{ZERO_WIDTH_SPACE}`"
PERSON, CHANNEL, MESSAGE = "person:", "channel:", "message:"
ID = r"(?:[A-Z][A-Z0-9]{1,30}|tg:[1-9][0-9]{0,18})"
NAMED = re.compile(rf"(?<!\\)\[@({ID})\]\({PERSON}\1\)")
"""A mention as written by ``person``."""

Kind = Literal["text", "code", "fence", "bold", "italic", "quote", "link"]

_SPECIAL = re.compile(r"[\\`*_\[\]<&~|]|(?m:^)(?P<space>[ \t]*)(?:[#>+=-]|(?P<number>\d+)(?=[.)]))")
_HALF_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_FENCED = r"(?m:^)```[^\n`]*\n(?P<fence>.*?)\n```(?=\n|\Z)|"
_IN_LINES = (
    r"\\(?P<sign>[!-/:-@\[-`{-~])"
    r"|(?<!`)(?P<ticks>`{1,3}+)(?!`)(?P<code>[^\n]{0,4000}?[^`\n])(?P=ticks)(?!`)"
    r"|\[(?P<label>(?:\\.|[^\\\[\]\n]|\[[^\\\[\]\n]*+\])*+)\]\((?P<url>[^\s()<>]{1,2000})\)"
    r"|\*\*(?P<bold>(?:\\.|`[^`\n]++`|[^\\*`\n])++)\*\*"
    r"|(?<!\w)_(?P<italic>(?:\\.|`[^`\n]++`|[^\\_`\n])++)_(?!\w)"
    r"|(?m:^)(?P<quote>> ?)"
)
_SPAN = re.compile(_FENCED + _IN_LINES, re.DOTALL)
_SPAN_IN_LINES = re.compile(_IN_LINES, re.DOTALL)
_LAST_CLOSING = re.compile(r".*\n```(?=\n|\Z)", re.DOTALL)
_TICKS_OR_ESCAPE = re.compile(r"(`+)|\\([!-/:-@\[-`{-~])")
PAGES = "https://dashboard.invalid/"
"""The target of a link to a dashboard page until it is sent: only the parent knows the address."""
_PAGE = re.compile(rf"(?: · )?\[[^\[\]]*\]\({re.escape(PAGES)}[^\s()<>]*\)")
_LINKED = re.compile(
    rf"(?<!\\)\[(?P<label>(?:\\.|[^\\\[\]\n])*+)\]\({MESSAGE}(?P<channel>[^\s()<>/]+)/(?P<ref>[^\s()<>/]+)\)"
)
Addresses = Callable[[ConversationRef, MessageRef], str]
"""Finds where people see a message, by its channel and ref; of a channel itself by NOWHERE; "" if that has no
address."""


class Span(Struct, frozen=True):
    """A piece of our Markdown. The ``text`` of bold, italics and a link's label is Markdown again."""

    kind: Kind
    text: str
    url: str = ""


def plain(text: str) -> str:
    """Foreign text as Markdown that shows it literally."""
    return _SPECIAL.sub(_escaped, text)


def code(text: str) -> str:
    """Foreign text on one line as inline code: no backtick ends it early."""
    return f"`{text.replace('`', chr(39))}`"


def fence(text: str) -> str:
    """Foreign text as a code block that nothing in it ends early."""
    return f"{FENCE}\n{text.replace(FENCE, CUT_FENCE)}\n{FENCE}"


def person(user: PersonRef) -> str:
    """A mention of a person, which the chat shows as a name."""
    return f"[@{user}]({PERSON}{user})" if re.fullmatch(ID, user) else plain(user)


def channel(channel_id: ConversationRef, name: str = "") -> str:
    """A mention of a channel. A chat that does not know its name shows ``name``."""
    return f"[{plain(name) or f'#{channel_id}'}]({CHANNEL}{channel_id})"


def people_in(markdown: str) -> tuple[PersonRef, ...]:
    """The people mentioned."""
    return tuple(map(PersonRef, NAMED.findall(markdown)))


def clip(markdown: str, limit: int) -> str:
    """At most ``limit`` characters, without half an escape at the end."""
    if len(markdown) <= limit:
        return markdown
    return _HALF_ESCAPE.sub(lambda found: found[0][:-1], markdown[: limit - 1]) + "…"


def spans(markdown: str) -> Iterator[Span]:
    """The pieces in order; text that contains escapes is one piece."""
    text, done = "", 0
    for found in _marks(markdown):
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


def _marks(markdown: str) -> Iterator[re.Match[str]]:
    """The marks in order. Linear: no fence is searched for where none is closed any more."""
    closing = _LAST_CLOSING.match(markdown)
    fenced = closing.end() if closing else 0
    yield from _SPAN.finditer(markdown, 0, fenced)
    yield from _SPAN_IN_LINES.finditer(markdown, fenced)


def bare(markdown: str) -> str:
    """The text without escapes but with its marks: for readers who see the source."""
    shown, at, unclosed = "", 0, set[str]()
    while found := _TICKS_OR_ESCAPE.search(markdown, at):
        ticks, end = found[1], found.end()
        shown += markdown[at : found.start()] + (found[2] or ticks)
        if ticks and ticks not in unclosed:
            closing = markdown.find(ticks, end)
            if closing < 0:
                unclosed.add(ticks)
            else:
                shown += markdown[end : closing + len(ticks)]
                end = closing + len(ticks)
        at = end
    return shown + markdown[at:]


def words(markdown: str) -> str:
    """The text alone, as people read it."""
    return "".join(
        words(span.text) if span.kind in ("bold", "italic", "link") else span.text
        for span in spans(markdown)
        if span.kind != "quote"
    )


def _escaped(found: re.Match[str]) -> str:
    if found["number"]:
        return f"{found[0]}\\"
    return f"{found['space'] or ''}\\{found[0][-1]}"


def message_link(channel: ConversationRef, ref: MessageRef, label: str) -> str:
    """A message as a link; ``label`` is Markdown already."""
    return f"[{label}]({MESSAGE}{channel}/{ref})"


def linked(markdown: str, address: Addresses) -> str:
    """The text with its links to messages leading to their addresses. If a message has no address, only the label is
    left."""

    def led(found: re.Match[str]) -> str:
        url = address(ConversationRef(found["channel"]), MessageRef(found["ref"]))
        return f"[{found['label']}]({url})" if url else found["label"]

    return _LINKED.sub(led, markdown)


def with_pages(text: str, address: str) -> str:
    """The text with every link to a page of the dashboard leading to ``address``; without them if that is ""."""
    return text.replace(PAGES, address) if address else _PAGE.sub("", text)
