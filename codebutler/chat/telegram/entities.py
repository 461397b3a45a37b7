"""Formatted text as Telegram takes it: the text, and a list of which parts of it are bold, code, a link…
Pure.

Nothing in a text is markup, so no text can become any. Telegram counts in UTF-16 units; this module counts in
characters, and converts at the border. Limits (Bot API): 4,096 characters, and 100 entities; further ones are
dropped silently.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

MAX_UNITS = 4096
"""In UTF-16 units, of which no character takes less than one."""
MAX_ENTITIES = 100
EXCLUSIVE = frozenset({"pre", "code"})
"""Entities that hold no other entity, and are in none."""

_UNSENDABLE = re.compile("[\ud800-\udfff\x00-\x08\x0b-\x1f\x7f]")
_BREAKS = (re.compile(r"\n[ \t]*\n"), re.compile(r"\n"), re.compile(r"[ \t]"))


class Entity(Struct, frozen=True):
    """The formatting of a part of a text. ``kind`` is Telegram's name for it; ``extra`` its other fields (``url``,
    ``language``, ``user``)."""

    kind: str
    start: int
    end: int
    extra: tuple[tuple[str, Any], ...] = ()


class FormattedText(Struct, frozen=True):
    """A text and its entities, in the order of their starts, the outer one first."""

    text: str = ""
    entities: tuple[Entity, ...] = ()

    @property
    def units(self) -> int:
        """Its length as Telegram counts it."""
        return sum(map(_units, self.text))

    def as_json(self) -> list[dict[str, Any]]:
        """The entities with offsets in UTF-16 units."""
        at = [0, *accumulate(map(_units, self.text))]
        return [
            {
                "type": each.kind,
                "offset": at[each.start],
                "length": at[each.end] - at[each.start],
                **dict(each.extra),
            }
            for each in self.entities
        ]

    def stripped(self) -> FormattedText:
        """Without blank space at its ends, which Telegram would take away without moving the entities. The indentation
        of code stays."""
        text = self.text.rstrip()
        start = len(text) - len(text.lstrip())
        if any(each.kind == "pre" and each.start < start < each.end for each in self.entities):
            start = text.rfind("\n", 0, start) + 1
        return self.cut(start, len(text))

    def cut(self, start: int, end: int) -> FormattedText:
        """The part from ``start`` up to ``end``, with what is left of each entity there."""
        inside = [
            replace(each, start=max(each.start, start) - start, end=min(each.end, end) - start)
            for each in self.entities
            if each.start < end and each.end > start
        ]
        return FormattedText(self.text[start:end], tuple(inside))


def without_unsendable(text: str) -> str:
    """Without characters that no message can hold."""
    return _UNSENDABLE.sub("", text)


class _Open(Struct):
    kind: str
    extra: tuple[tuple[str, Any], ...]
    start: int | None = None


class Builder(Struct):
    """Write from the beginning to the end; ``build`` is the result so far. ``prefix`` begins each further line."""

    prefix: str = ""
    _out: list[str] = field(default_factory=list)
    _length: int = 0
    _gap: str = ""
    _open: list[_Open] = field(default_factory=list)
    _entities: list[Entity] = field(default_factory=list)

    def build(self) -> FormattedText:
        """The text with its entities."""
        ordered = sorted(self._entities, key=lambda each: (each.start, -each.end))
        return FormattedText("".join(self._out), tuple(ordered)).stripped()

    def write(self, text: str) -> None:
        """Text as it is, formatted as whatever is open."""
        text = without_unsendable(text)
        if text:
            self._append(text.replace("\n", f"\n{self.prefix}"))

    def gap(self, lines: int) -> None:
        """The next text starts after this many line ends; nothing, if nothing follows."""
        if len(self._gap) < lines:
            self._gap = "\n" * lines

    @contextmanager
    def formatted(self, kind: str, **extra: Any) -> Iterator[None]:
        """Text written in the block has that kind. The same kind, or a link, does not nest."""
        if any(each.kind == kind for each in self._open):
            yield
            return
        mark = _Open(kind, tuple(extra.items()))
        self._open.append(mark)
        yield
        self._close(mark)
        self._open.remove(mark)

    def code(self, text: str) -> None:
        """Inline code. In a link it is plain text: Telegram allows no code there."""
        text = without_unsendable(text).replace("\n", " ")
        if any(each.kind in ("text_link", "text_mention") for each in self._open):
            self.write(text)
        elif text:
            self._append_exclusive("code", text)

    def pre(self, text: str, language: str = "") -> None:
        """A block of code on lines of its own."""
        text = without_unsendable(text).rstrip()
        if not text.strip():
            return
        if self._out and not self._out[-1].endswith("\n"):
            self.gap(1)
        prefix, self.prefix = self.prefix, ""
        self._append_exclusive("pre", text, **({"language": language} if language else {}))
        self.prefix = prefix
        self.gap(1)

    def _append_exclusive(self, kind: str, text: str, **extra: Any) -> None:
        for each in self._open:
            self._close(each)
        outer, self._open = self._open, []
        with self.formatted(kind, **extra):
            self._append(text)
        self._open = outer

    def _close(self, mark: _Open) -> None:
        if mark.start is not None and self._length > mark.start:
            self._entities.append(Entity(mark.kind, mark.start, self._length, mark.extra))
        mark.start = None

    def _append(self, text: str) -> None:
        if self._gap:
            if text.startswith("\n"):
                self._gap = self._gap[1:]
            gap = self._gap + self.prefix if self._length else ""
            self._out.append(gap)
            self._length += len(gap)
            self._gap = ""
        for each in self._open:
            if each.start is None:
                each.start = self._length
        self._out.append(text)
        self._length += len(text)


def split(
    whole: FormattedText, limit: int = MAX_UNITS, max_entities: int = MAX_ENTITIES
) -> list[FormattedText]:
    """``whole`` in parts that each fit a message; only blank space is lost.

    Breaks between blocks if possible, else between lines, words, characters; a block of code stays whole if
    it fits, and otherwise continues as code.
    """
    units = [0, *accumulate(map(_units, whole.text))]
    parts: list[FormattedText] = []
    at = 0
    while at < len(whole.text):
        end = _max_end(whole, units, at, limit, max_entities)
        if end < len(whole.text):
            end = _best_break(whole, units, at, end, limit)
        part = whole.cut(at, end).stripped()
        if part.text:
            parts.append(part)
        at = end
    return parts


def _max_end(whole: FormattedText, units: Sequence[int], at: int, limit: int, max_entities: int) -> int:
    end = bisect_right(units, units[at] + limit) - 1
    inside = [each for each in whole.entities if each.end > at and each.start < end]
    if len(inside) > max_entities:
        end = inside[max_entities].start
    return max(end, at + 1)


def _best_break(whole: FormattedText, units: Sequence[int], at: int, end: int, limit: int) -> int:
    across = next((e for e in whole.entities if e.kind in EXCLUSIVE and e.start < end < e.end), None)
    if across is not None and across.start > at and units[across.end] - units[across.start] <= limit:
        if across.kind != "code" and whole.text[at : across.start].strip():
            return across.start
        end = across.start
    least = at + (end - at) // 3
    for pattern in _BREAKS:
        ends = [found.end() for found in pattern.finditer(whole.text, at, end)]
        for place in reversed(ends):
            if place <= least:
                break
            # Not within code that ends within the part.
            if not any(e.kind in EXCLUSIVE and e.start < place < e.end <= end for e in whole.entities):
                return place
    return end


def _units(char: str) -> int:
    return 2 if char > "\uffff" else 1
