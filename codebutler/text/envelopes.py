"""Envelopes in an agent's text, ``<<<SLACK:type>>> … <<<END_SLACK>>>``, read in pieces. Pure.

Case does not matter, and a marker may be split anywhere. An envelope that is not closed (at the end, after too long,
above the limit, or because the next one starts) is returned as incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from codebutler.text.wording import tidied

CLOSING = "<<<END_SLACK>>>"
MAX_BODY_CHARS = 100_000
MAX_TYPE_CHARS = 20
UNCLOSED_S = 30.0

# Letters as classes, not re.IGNORECASE: only then is "<<<" a literal prefix, which is searched for at full speed.
_OPEN = rf"[sS][lL][aA][cC][kK](?::([a-zA-Z]{{1,{MAX_TYPE_CHARS}}}))?"
_CLOSE = r"(?P<close>[eE][nN][dD]_[sS][lL][aA][cC][kK])"
_OPENING = re.compile(rf"<<<{_OPEN}>>>")
_MARKER = re.compile(rf"<<<(?:{_OPEN}|{_CLOSE})>>>")
_LONGEST_MARKER = len("<<<SLACK:>>>") + MAX_TYPE_CHARS
_BEGUN = re.compile(r"<{3}(?:S(?:L(?:A(?:C(?:K.*)?)?)?)?)?\Z|<{3}SLACK.*", re.IGNORECASE | re.DOTALL)


def enveloped(body: str, kind: str = "") -> str:
    """``body`` in an envelope of that type, as agents write it."""
    return f"<<<SLACK{kind and f':{kind}'}>>>{body}{CLOSING}"


def before_any(text: str) -> str:
    """The part of unfinished text that is certainly before any envelope."""
    return _BEGUN.sub("", text)


class Prose(Struct, frozen=True):
    """Text outside any envelope, unchanged."""

    text: str


class Envelope(Struct, frozen=True):
    """An envelope. ``type`` is lower case, "" if none is given; ``body`` is stripped."""

    type: str
    body: str
    complete: bool = True


Part = Prose | Envelope


class EnvelopeParser:
    """Parses text as it arrives; returns each part as soon as it is certain.

    Times are of any monotonic clock; leave them out if you have none.
    """

    def __init__(self, unclosed_s: float = UNCLOSED_S) -> None:
        self._unclosed_s = unclosed_s
        self._rest = ""  # may be the beginning of a marker
        self._type: str | None = None  # of the envelope that is open
        self._body: list[str] = []
        self._body_chars = 0
        self._opened_s = 0.0

    @property
    def open(self) -> bool:
        """Whether an envelope has started and not ended."""
        return self._type is not None

    def feed(self, text: str, now_s: float = 0.0) -> list[Part]:
        """The parts that are complete now."""
        text = self._rest + text
        parts: list[Part] = []
        at = 0
        while (marker := (_MARKER if self.open else _OPENING).search(text, at)) is not None:
            self._add(text[at : marker.start()], parts)
            at = marker.end()
            closes = self.open and marker["close"] is not None
            if self.open:
                parts.append(self._take(complete=closes))
            if not closes:
                self._type, self._opened_s = (marker[1] or "").lower(), now_s
        end = _possible_marker(text, max(at, len(text) - _LONGEST_MARKER))
        self._add(text[at:end], parts)
        self._rest = text[end:]
        if self._body_chars > MAX_BODY_CHARS:
            parts.append(self._take(complete=False))
        return parts

    def overdue(self, now_s: float) -> list[Part]:
        """An envelope that has been open for too long, as an incomplete one. Text after it is prose."""
        if not self.open or now_s - self._opened_s < self._unclosed_s:
            return []
        return [self._take(complete=False)]

    def close(self) -> list[Part]:
        """The remaining parts: nothing more will come."""
        parts: list[Part] = []
        rest, self._rest = self._rest, ""
        self._add(rest, parts)
        if self.open:
            parts.append(self._take(complete=False))
        return parts

    def _add(self, text: str, parts: list[Part]) -> None:
        if not text:
            return
        if self.open:
            self._body.append(text)
            self._body_chars += len(text)
        else:
            parts.append(Prose(text))

    def _take(self, *, complete: bool) -> Envelope:
        envelope = Envelope(self._type or "", "".join(self._body)[:MAX_BODY_CHARS].strip(), complete)
        self._type = None
        self._body.clear()
        self._body_chars = 0
        return envelope


def parts_of(text: str) -> list[Part]:
    """The parts of a whole text."""
    parser = EnvelopeParser()
    return [*parser.feed(text), *parser.close()]


def prose_of(parts: Iterable[Part]) -> str:
    """The text outside the envelopes."""
    return tidied("".join(part.text for part in parts if isinstance(part, Prose)))


def _possible_marker(text: str, start: int) -> int:
    """Where, from ``start`` on, a marker may begin at the end of the text; else the text's end."""
    at = text.find("<", start)
    while at >= 0:
        if _begins_marker(text[at:]):
            return at
        at = text.find("<", at + 1)
    return len(text)


def _begins_marker(text: str) -> bool:
    """Whether more text could make this a marker."""
    word = text.removeprefix("<<<")
    if word == text:
        return "<<<".startswith(text)
    upper = word.upper()
    for name in ("SLACK", "END_SLACK"):
        if name.startswith(upper):
            return True
        if upper.startswith(name):
            tail = word[len(name) :]
            letters = tail.removeprefix(":") if name == "SLACK" else tail
            kind = letters.rstrip(">")
            typed = (
                name == "SLACK" and tail.startswith(":") and (not kind or (kind.isascii() and kind.isalpha()))
            )
            if (typed or not kind) and len(letters) - len(kind) < 3:
                return True
    return False
