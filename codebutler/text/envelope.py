"""Envelopes in an agent's text: ``<<<SLACK:type>>> … <<<END_SLACK>>>``. Pure, and safe for text in pieces.

What is not a whole envelope is prose: an unknown form, one that is never closed, one that is too long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

CLOSING = "<<<END_SLACK>>>"
MAX_BODY_CHARS = 100_000
MAX_TYPE_CHARS = 20

_OPENING = re.compile(rf"<<<SLACK:([a-z]{{1,{MAX_TYPE_CHARS}}})>>>")
_LONGEST_OPENING = len("<<<SLACK:>>>") + MAX_TYPE_CHARS
_PART_OF_OPENING = re.compile(
    rf"<(?:<(?:<(?:S(?:L(?:A(?:C(?:K(?::[a-z]{{0,{MAX_TYPE_CHARS}}}>{{0,2}})?)?)?)?)?)?)?)?\Z"
)


@dataclass(frozen=True, slots=True)
class Prose:
    """Text outside any envelope, as it was."""

    text: str


@dataclass(frozen=True, slots=True)
class Envelope:
    """``body`` is stripped."""

    type: str
    body: str


Part = Prose | Envelope


class EnvelopeParser:
    """Takes text as it comes; gives each part as soon as it is certain what it is."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> list[Part]:
        """The parts that are complete now."""
        self._rest += text
        parts: list[Part] = []
        while (part := self._next()) is not None:
            parts.append(part)
        return parts

    def close(self) -> list[Part]:
        """What is left, as prose: nothing more will come."""
        rest, self._rest = self._rest, ""
        return [Prose(rest)] if rest else []

    def _next(self) -> Part | None:
        opening = _OPENING.search(self._rest)
        if opening is None:
            half = _PART_OF_OPENING.search(self._rest, max(0, len(self._rest) - _LONGEST_OPENING))
            return self._cut(half.start() if half else len(self._rest))
        if opening.start() > 0:
            return self._cut(opening.start())
        end = self._rest.find(CLOSING, opening.end())
        if end < 0:
            too_long = len(self._rest) - opening.end() > MAX_BODY_CHARS
            return self._cut(opening.end()) if too_long else None
        body = self._rest[opening.end() : end]
        self._rest = self._rest[end + len(CLOSING) :]
        return Envelope(opening[1], body.strip())

    def _cut(self, end: int) -> Prose | None:
        prose, self._rest = self._rest[:end], self._rest[end:]
        return Prose(prose) if prose else None


def parts_of(text: str) -> list[Part]:
    """The parts of a whole text."""
    parser = EnvelopeParser()
    return [*parser.feed(text), *parser.close()]


def without(parts: Iterable[Part], kind: str) -> str:
    """The text again, less the envelopes of one type; the others stay as they were."""
    texts = [_written(part) for part in parts if not (isinstance(part, Envelope) and part.type == kind)]
    return re.sub(r"\n{3,}", "\n\n", "".join(texts)).strip()


def _written(part: Part) -> str:
    return part.text if isinstance(part, Prose) else f"<<<SLACK:{part.type}>>> {part.body} {CLOSING}"
