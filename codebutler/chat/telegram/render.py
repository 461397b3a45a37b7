"""Messages as Telegram shows them: formatted text in parts that fit, and what may be pressed below the last. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from codebutler.chat.layout import Box, Section, sections
from codebutler.chat.telegram.entities import Builder, FormattedText, split
from codebutler.chat.telegram.markdown import Mentions, foreign, mention, own
from codebutler.domain.message import PICK_ACTION, Button, Message, QuestionCard, Style
from codebutler.text.markup import plain as literal
from codebutler.text.markup import words

MAX_CHARS = 50_000
"""What is rendered of a text at all."""
MAX_SECTIONS = 100
# Telegram takes 8 in a row and 100 in all; more than 30 characters in a row are cut off on a phone.
MAX_ROW = 3
ROW_CHARS = 30
MAX_KEYS = 100
LABEL_CHARS = 60
NOTHING = "(this message cannot be shown)"
OPEN, TICKED = "☐ ", "☑ "
NOBODY = Mentions()


@dataclass(frozen=True, slots=True)
class Key:
    """Something to press. The one for a box begins with ``OPEN`` or ``TICKED``."""

    label: str
    action: str
    value: str
    style: Style = ""


@dataclass(frozen=True, slots=True)
class Rendered:
    """``parts`` are messages of their own, at least one; ``keys`` stand below the last, row by row."""

    parts: tuple[FormattedText, ...]
    keys: tuple[tuple[Key, ...], ...] = ()


def rendered(message: Message, mentioned: str = "", people: Mentions = NOBODY) -> Rendered:
    """``mentioned``: a user to call, at the top."""
    # Questions are numbered already.
    shown = laid_out(
        sections(message), mentioned, people, with_numbers=not isinstance(message.card, QuestionCard)
    )
    if message.is_short:
        return Rendered(tuple(FormattedText(part.text) for part in shown.parts))
    return shown


def laid_out(
    parts: Sequence[Section], mentioned: str = "", people: Mentions = NOBODY, *, with_numbers: bool = True
) -> Rendered:
    """One below the other. All keys stand at the end, so where there are several things to decide each has a number."""
    parts = parts[:MAX_SECTIONS]
    heads, below = _numbers(parts)
    out = Builder()
    if mentioned:
        mention(out, mentioned, people)
        out.write(" ")
    keys: list[tuple[Key, ...]] = []
    for at, part in enumerate(parts):
        if at:
            out.gap(2 if part.begins or part.kind == "heading" else 1)
        _write(out, part, people, heads.get(at, "") if with_numbers else "")
        keys += _rows(part, below.get(at, ""))
    return Rendered(tuple(split(out.built())) or (FormattedText("…" if keys else NOTHING),), _few(keys))


def _numbers(parts: Sequence[Section]) -> tuple[dict[int, str], dict[int, str]]:
    """What is put before the texts and the buttons of the parts: the same before both of what belongs together."""
    heads: dict[int, str] = {}
    below: dict[int, str] = {}
    first: int | None = None
    for at, part in enumerate(parts):
        if first is None and part.markdown and part.kind != "heading":
            first = at
        if part.buttons or part.boxes:
            if first is not None:
                heads[first] = below[at] = f"{len(below) + 1}. "
            first = None
    return (heads, below) if len(below) > 1 else ({}, {})


def _write(out: Builder, part: Section, people: Mentions, number: str) -> None:
    source = part.markdown[:MAX_CHARS]
    if number:
        with out.marked("bold"):
            out.write(number)
    match part.kind:
        case "foreign" | "plan":
            foreign(out, source)
        case "heading":
            with out.marked("bold"):
                own(out, source, people)
        case _:
            own(out, source, people)
    for box in part.boxes:
        if box.detail:
            out.gap(1)
            own(out, f"• **{literal(box.label)}**: {literal(box.detail)}", people)


def _rows(part: Section, number: str) -> Iterator[tuple[Key, ...]]:
    """A box is a key that can be ticked, in a row of its own."""
    for box in part.boxes:
        yield (_box(box, number),)
    row: list[Key] = []
    for button in part.buttons:
        key = _key(button, number)
        if row and (len(row) == MAX_ROW or sum(len(k.label) + 2 for k in row) + len(key.label) > ROW_CHARS):
            yield tuple(row)
            row = []
        row.append(key)
    if row:
        yield tuple(row)


def _box(box: Box, number: str) -> Key:
    return Key(_label((TICKED if box.ticked else OPEN) + number + words(box.label)), PICK_ACTION, box.value)


def _key(button: Button, number: str) -> Key:
    return Key(_label(number + button.label), button.action, button.value, button.style)


def _label(text: str) -> str:
    text = " ".join(text.split()) or "…"
    return text if len(text) <= LABEL_CHARS else f"{text[: LABEL_CHARS - 1]}…"


def _few(rows: Sequence[tuple[Key, ...]]) -> tuple[tuple[Key, ...], ...]:
    found: list[tuple[Key, ...]] = []
    count = 0
    for row in rows:
        if count + len(row) > MAX_KEYS:
            break
        found.append(row)
        count += len(row)
    return tuple(found)
