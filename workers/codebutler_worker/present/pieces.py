"""A long record in pieces: without secrets, and never cut inside one. The caller reads.

Bytes that are not text come through unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice

from codebutler.text.redact import Redactor

PIECE_BYTES = 2**20
"""How much is read at once: the bound on memory."""
REACH_BYTES = 2**16
"""No secret with its context is longer."""
SEARCHED_BYTES = 2**18
"""How far before the wanted place a cut may be."""
CANDIDATES = 32
"""How many places of each kind are tried."""
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9A-B]|[=>78])")
_CONTINUED = range(0x80, 0xC0)
"""Continuation bytes in UTF-8."""


Read = Callable[[int, int], bytes]
"""The bytes of a record between two places, the end excluded. Raises OSError."""


class Pieces:
    """The first ``size`` bytes of the record; later writes do not count."""

    def __init__(self, read: Read, size: int, redactor: Redactor) -> None:
        self._read = read
        self._size = size
        self._redactor = redactor

    def cut(self, near: int) -> int:
        """Where to cut, at ``near`` or less than SEARCHED_BYTES before: after a line, else anywhere that does
        not split a secret. At ``near`` if secrets are everywhere. Raises OSError."""
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
        """The bytes between two cuts, without secrets. Raises OSError."""
        while start < end:
            stop = self.cut(start + PIECE_BYTES) if end - start > PIECE_BYTES else end
            yield hidden(self._read(start, stop), self._redactor)
            start = stop

    def _is_safe(self, around: bytes, place: int) -> bool:
        """Whether both sides apart show what they show together."""
        before = around[max(0, place - REACH_BYTES) : place]
        after = around[place : place + REACH_BYTES]
        apart = hidden(before, self._redactor) + hidden(after, self._redactor)
        return hidden(before + after, self._redactor) == apart


def hidden(content: bytes, redactor: Redactor) -> bytes:
    """The same without secrets."""
    # Byte by byte, so that bytes that are not text come through unchanged.
    return without_secrets(content.decode("latin-1"), redactor).encode("latin-1")


def without_secrets(text: str, redactor: Redactor) -> str:
    """The log without secrets, including those that a program coloured in parts. A line with such a secret
    loses its colours."""
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
    """Places from ``near`` down to ``least``: ends of lines first, the nearest and some far apart."""
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
    """``place``, or the start of the character that it falls into."""
    for back in range(4):
        if place - back > 0 and around[place - back] not in _CONTINUED:
            return place - back
    return place
