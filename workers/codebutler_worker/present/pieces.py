"""A long record a piece at a time: without secrets, and cut where none lies across. Reading is the caller's.

Bytes that are no text come through as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from codebutler.text.redact import Redactor

PIECE_BYTES = 2**20
"""How much is looked at in one go: what bounds the memory."""
REACH_BYTES = 2**16
"""No secret is longer, with all that belongs to it."""
SEARCHED_BYTES = 2**18
"""How far before the wanted place a cut may be."""
CANDIDATES = 32
"""Of each kind."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9A-B]|[=>78])")
_CONTINUED = range(0x80, 0xC0)
"""Bytes in the midst of a character, in UTF-8."""


Read = Callable[[int, int], bytes]
"""The bytes of a record from one place to before another. Raises OSError."""


class Pieces:
    """The record's first ``size`` bytes; what is written to it meanwhile does not count."""

    def __init__(self, read: Read, size: int, redactor: Redactor) -> None:
        self._read = read
        self._size = size
        self._redactor = redactor

    def cut(self, near: int) -> int:
        """Where to cut, at ``near`` or less than SEARCHED_BYTES before: after a line, else anywhere, where it takes
        nothing of a secret apart. Where all is full of secrets, at ``near``. Raises OSError."""
        if near <= 0 or near >= self._size:
            return min(max(near, 0), self._size)
        least = max(1, near - SEARCHED_BYTES + 1)
        start = max(0, least - REACH_BYTES)
        around = self._read(start, min(self._size, near + REACH_BYTES))
        for place in _candidates(around, least - start, near - start):
            if self._is_safe(around, place):
                return start + place
        return near

    def redacted(self, start: int, end: int) -> Iterator[bytes]:
        """From one cut to another, without secrets. Raises OSError."""
        while start < end:
            stop = self.cut(start + PIECE_BYTES) if end - start > PIECE_BYTES else end
            yield hidden(self._read(start, stop), self._redactor)
            start = stop

    def _is_safe(self, around: bytes, place: int) -> bool:
        """Whether both sides for themselves show what they show together."""
        before = around[max(0, place - REACH_BYTES) : place]
        after = around[place : place + REACH_BYTES]
        apart = hidden(before, self._redactor) + hidden(after, self._redactor)
        return hidden(before + after, self._redactor) == apart


def hidden(content: bytes, redactor: Redactor) -> bytes:
    """The same without secrets."""
    # Byte by byte, so that what is no text comes through as it is.
    return without_secrets(content.decode("latin-1"), redactor).encode("latin-1")


def without_secrets(text: str, redactor: Redactor) -> str:
    """The log without secrets, those among them that a program has coloured in parts. A line with such a one comes
    without its colours."""
    redacted = redactor.redact(text)
    bare = _ESCAPES.sub("", redacted)
    if redactor.redact(bare) == bare:
        return redacted
    return "".join(_line_without(line, redactor) for line in redacted.splitlines(keepends=True))


def _line_without(line: str, redactor: Redactor) -> str:
    bare = _ESCAPES.sub("", line)
    hides = redactor.redact(bare)
    return line if hides == bare else hides


def _candidates(around: bytes, least: int, near: int) -> Iterator[int]:
    """Places from ``near`` down to ``least``: after lines first, the nearest ones and some far apart."""
    for mark in (b"\n", b"\r"):
        yield from islice(_after(around, mark, least, near, 1), CANDIDATES)
        yield from _after(around, mark, least, near, max(1, (near - least) // CANDIDATES))
    step = max(1, (near - least) // CANDIDATES)
    yield from (_whole(around, place) for place in range(near, least - 1, -step))


def _after(around: bytes, mark: bytes, least: int, near: int, step: int) -> Iterator[int]:
    place = near
    while (found := around.rfind(mark, least - 1, place)) >= 0:
        yield found + 1
        place = found + 1 - step
        if place < least:
            return


def _whole(around: bytes, place: int) -> int:
    """``place``, or the start of the character that it is in."""
    for back in range(4):
        if place - back > 0 and around[place - back] not in _CONTINUED:
            return place - back
    return place
