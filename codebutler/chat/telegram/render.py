"""Renders messages for Telegram: formatted text in parts that fit, and the buttons below the last; converts Markdown,
an agent's and our own. Pure; never raises, and nothing in it pings anybody."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from urllib.parse import urlsplit

from markdown_it.token import Token
from msgspec import Struct

from codebutler.chat.layout import Section, sections
from codebutler.chat.telegram.entities import Builder, FormattedText, split
from codebutler.chat.telegram.rules import PREFIX
from codebutler.domain.message import PICK_ACTION, Message, QuestionCard, Style
from codebutler.domain.refs import NO_PERSON, PersonRef
from codebutler.text.markdown import BULLETS, Node, blocks, table_lines
from codebutler.text.markdown import plain as plain_text
from codebutler.text.markup import CHANNEL, PERSON, Span, spans, words
from codebutler.text.markup import plain as escape

MAX_CHARS = 50_000
"""The longest text that is rendered."""
MAX_SECTIONS = 100
# Telegram allows 8 in a row and 100 in all; more than 30 characters in a row are cut off on a phone.
MAX_ROW = 3
ROW_CHARS = 30
MAX_BUTTONS = 100
LABEL_CHARS = 60
EMPTY_TEXT = "(this message cannot be shown)"
OPEN, TICKED = "☐ ", "☑ "
RULE = "─" * 16
INDENT = "    "
WORD_JOINER = "\u2060"
STYLES = {"strong": "bold", "em": "italic", "s": "strikethrough"}
MAX_URL = 2000

_TASK = re.compile(r"\[([ xX])\] ")
_PING = re.compile(r"(?<![\w.@])@(?=\w)")
# File extensions that are also country domains: Telegram would link such file names to somebody's site.
_FILE = re.compile(
    r"(?<![\w/.-])[\w./-]*\w\.(?:md|py|rs|sh|pl|cc|so|ps|mk|ml|zip|mov|app)(?![\w/-]|\.\w)", re.ASCII
)
_ADDRESS = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:|www\.|[\w-]+(?:\.[\w-]+)+(?:[/:?#]|\s*$))", re.I)
_PERSON = re.compile(rf"{PREFIX}([1-9][0-9]*)")

Names = Callable[[PersonRef], str]
"""A user's display name (``tg:…``); "" if unknown."""


class Mentions(Struct, frozen=True):
    """Who may be named in a mention, and their names."""

    names: Collection[PersonRef] = ()
    name_of: Names = lambda _user: ""


def write_agent_markdown(out: Builder, markdown: str) -> None:
    """Write an agent's Markdown."""
    _write_blocks(out, blocks(markdown))


def write_own_markdown(out: Builder, markdown: str, people: Mentions) -> None:
    """Write our own Markdown, which keeps line breaks."""
    quoted = False
    for span in spans(markdown):
        if span.kind == "quote":
            quoted = True
        elif quoted and span.kind == "text" and "\n" in span.text:
            line, rest = span.text.split("\n", 1)
            with out.formatted("blockquote"):
                write_plain(out, line)
            write_plain(out, f"\n{rest}")
            quoted = False
        elif quoted:
            with out.formatted("blockquote"):
                _write_span(out, span, people)
        else:
            _write_span(out, span, people)


def write_mention(out: Builder, user: PersonRef, people: Mentions) -> None:
    """Mention a user so that they are notified."""
    if found := _PERSON.fullmatch(user):
        name = people.name_of(user) or found[1]
        with out.formatted("text_mention", user={"id": int(found[1]), "is_bot": False, "first_name": name}):
            out.write(name)


def write_plain(out: Builder, text: str) -> None:
    """Text in which nothing mentions anybody and no file name becomes a link."""
    done = 0
    for found in _FILE.finditer(text):
        out.write(_PING.sub("@" + WORD_JOINER, text[done : found.start()]))
        out.code(found[0])
        done = found.end()
    out.write(_PING.sub("@" + WORD_JOINER, text[done:]))


def write_link(out: Builder, url: str, label: str) -> None:
    """A link that cannot hide its target; if Telegram does not accept it, the URL is shown."""
    label = " ".join(label.split())
    if not _is_web(url):
        address = url.removeprefix("mailto:")
        if label and label != address:
            write_plain(out, f"{label} ")
            out.code(f"({address})" if address else "")
        else:
            out.code(address)
        return
    if label and label != url and _ADDRESS.match(label):
        out.code(label)
        out.write(" ")
        label = url
    with out.formatted("text_link", url=url):
        out.write(_PING.sub("@" + WORD_JOINER, label or url))


def _write_span(out: Builder, span: Span, people: Mentions) -> None:
    match span.kind:
        case "code":
            out.code(span.text)
        case "fence":
            out.pre(span.text)
        case "bold" | "italic":
            with out.formatted(span.kind):
                write_own_markdown(out, span.text, people)
        case "link" if span.url.startswith(PERSON):
            user = PersonRef(span.url.removeprefix(PERSON))
            if user in people.names and _PERSON.fullmatch(user):
                write_mention(out, user, people)
            else:
                write_plain(out, people.name_of(user) or words(span.text))
        case "link" if span.url.startswith(CHANNEL):  # a chat has no address
            write_plain(out, words(span.text))
        case "link":
            write_link(out, span.url, words(span.text))
        case _:
            write_plain(out, span.text)


def _write_blocks(out: Builder, nodes: Sequence[Node], depth: int = 0, *, tight: bool = False) -> None:
    for at, node in enumerate(nodes):
        if at:
            out.gap(1 if tight else 2)
        _write_block(out, node, depth)


def _write_block(out: Builder, node: Node, depth: int) -> None:
    assert node.token is not None
    match node.type:
        case "paragraph":
            _write_inline(out, node.inline)
        case "heading":
            with out.formatted("bold"):
                _write_inline(out, node.inline)
        case "fence":
            out.pre(node.token.content, node.token.info.split()[0][:40] if node.token.info.split() else "")
        case "code_block":
            out.pre(node.token.content)
        case "bullet_list" | "ordered_list":
            _write_list(out, node, depth)
        case "blockquote":
            with out.formatted("blockquote"):
                _write_blocks(out, node.children, depth)
        case "table":
            out.pre("\n".join(table_lines(node)))
        case "hr":
            out.write(RULE)
        case _:
            write_plain(out, node.token.content)


def _write_list(out: Builder, node: Node, depth: int) -> None:
    assert node.token is not None
    ordered = node.type == "ordered_list"
    number = int(node.token.attrs.get("start", 1))
    for offset, item in enumerate(node.children):
        if offset:
            out.gap(1)
        mark = f"{number + offset}." if ordered else BULLETS[depth % len(BULLETS)]
        _write_item(out, item, mark, depth)


def _write_item(out: Builder, item: Node, mark: str, depth: int) -> None:
    first = next((token for child in item.children[:1] for token in child.inline), None)
    if first is not None and first.type == "text" and (task := _TASK.match(first.content)):
        mark = "☐" if task[1] == " " else "☑"
        first.content = first.content[task.end() :]
    out.write(f"{mark} ")
    prefix, out.prefix = out.prefix, out.prefix + INDENT
    _write_blocks(out, item.children, depth + 1, tight=True)
    out.prefix = prefix


def _write_inline(out: Builder, tokens: Sequence[Token]) -> None:
    at = 0
    while at < len(tokens):
        token = tokens[at]
        name = token.type.removesuffix("_open")
        if token.nesting > 0:
            end = _closing_index(tokens, at)
            _write_enclosed(out, name, token, tokens[at + 1 : end])
            at = end
        elif token.type == "code_inline":
            out.code(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            out.write("\n")
        elif token.type == "image":
            write_link(out, str(token.attrs.get("src", "")), plain_text(token.children or []) or "image")
        else:
            write_plain(out, token.content)
        at += 1


def _write_enclosed(out: Builder, name: str, token: Token, inner: Sequence[Token]) -> None:
    if name == "link":
        write_link(out, str(token.attrs.get("href", "")), plain_text(inner))
        return
    with out.formatted(STYLES[name]):
        _write_inline(out, inner)


def _closing_index(tokens: Sequence[Token], start: int) -> int:
    depth = 0
    for at in range(start, len(tokens)):
        depth += tokens[at].nesting
        if depth == 0:
            return at
    return len(tokens)


def _is_web(url: str) -> bool:
    """Whether Telegram accepts it as a link: a link that it does not accept fails the whole message."""
    if len(url) > MAX_URL or re.search(r"[\s<>\"\x00-\x1f]", url):
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    labels = host.split(".")
    return (
        parts.scheme in ("http", "https")
        and len(labels) > 1
        and all(re.fullmatch(r"[\w-]{1,63}", label) for label in labels)
    )


NO_MENTIONS = Mentions()


class InlineButton(Struct, frozen=True):
    """A button. One for a checkbox starts with ``OPEN`` or ``TICKED``."""

    label: str
    action: str
    value: str
    style: Style = ""


class Rendered(Struct, frozen=True):
    """A rendered message. ``parts`` are separate messages, at least one; ``button_rows`` are below the last."""

    parts: tuple[FormattedText, ...]
    button_rows: tuple[tuple[InlineButton, ...], ...] = ()


def render_message(
    message: Message, mentioned: PersonRef = NO_PERSON, people: Mentions = NO_MENTIONS
) -> Rendered:
    """``mentioned``: a user to mention at the top."""
    # Questions already have numbers.
    rendered = render_sections(
        sections(message), mentioned, people, with_numbers=not isinstance(message.card, QuestionCard)
    )
    if message.is_short:
        return Rendered(tuple(FormattedText(part.text) for part in rendered.parts))
    return rendered


def render_sections(
    parts: Sequence[Section],
    mentioned: PersonRef = NO_PERSON,
    people: Mentions = NO_MENTIONS,
    *,
    with_numbers: bool = True,
) -> Rendered:
    """Sections one below the other. All buttons are at the end, so if there are several decisions each has a
    number."""
    parts = parts[:MAX_SECTIONS]
    text_numbers, button_numbers = _number_decisions(parts)
    out = Builder()
    if mentioned:
        write_mention(out, mentioned, people)
        out.write(" ")
    button_rows: list[tuple[InlineButton, ...]] = []
    for at, part in enumerate(parts):
        if at:
            out.gap(2 if part.begins or part.kind == "heading" else 1)
        _write_section(out, part, people, text_numbers.get(at, "") if with_numbers else "")
        button_rows += _button_rows(part, button_numbers.get(at, ""))
    return Rendered(
        tuple(split(out.build())) or (FormattedText("…" if button_rows else EMPTY_TEXT),),
        _limit_rows(button_rows),
    )


def _number_decisions(parts: Sequence[Section]) -> tuple[dict[int, str], dict[int, str]]:
    """Numbers for the texts and buttons of the sections: a text and its buttons get the same one."""
    text_numbers: dict[int, str] = {}
    button_numbers: dict[int, str] = {}
    first: int | None = None
    for at, part in enumerate(parts):
        if first is None and part.markdown and part.kind != "heading":
            first = at
        if part.buttons or part.boxes:
            if first is not None:
                text_numbers[first] = button_numbers[at] = f"{len(button_numbers) + 1}. "
            first = None
    return (text_numbers, button_numbers) if len(button_numbers) > 1 else ({}, {})


def _write_section(out: Builder, part: Section, people: Mentions, number: str) -> None:
    source = part.markdown[:MAX_CHARS]
    if number:
        with out.formatted("bold"):
            out.write(number)
    match part.kind:
        case "foreign" | "plan":
            write_agent_markdown(out, source)
        case "heading":
            with out.formatted("bold"):
                write_own_markdown(out, source, people)
        case _:
            write_own_markdown(out, source, people)
    for box in part.boxes:
        if box.detail:
            out.gap(1)
            write_own_markdown(out, f"• **{escape(box.label)}**: {escape(box.detail)}", people)


def _button_rows(part: Section, number: str) -> Iterator[tuple[InlineButton, ...]]:
    """A checkbox is a button in a row of its own."""
    for box in part.boxes:
        label = (TICKED if box.ticked else OPEN) + number + words(box.label)
        yield (InlineButton(_shorten_label(label), PICK_ACTION, box.value),)
    row: list[InlineButton] = []
    for button in part.buttons:
        key = InlineButton(_shorten_label(number + button.label), button.action, button.value, button.style)
        if row and (len(row) == MAX_ROW or sum(len(k.label) + 2 for k in row) + len(key.label) > ROW_CHARS):
            yield tuple(row)
            row = []
        row.append(key)
    if row:
        yield tuple(row)


def _shorten_label(text: str) -> str:
    text = " ".join(text.split()) or "…"
    return text if len(text) <= LABEL_CHARS else f"{text[: LABEL_CHARS - 1]}…"


def _limit_rows(rows: Sequence[tuple[InlineButton, ...]]) -> tuple[tuple[InlineButton, ...], ...]:
    found: list[tuple[InlineButton, ...]] = []
    count = 0
    for row in rows:
        if count + len(row) > MAX_BUTTONS:
            break
        found.append(row)
        count += len(row)
    return tuple(found)
