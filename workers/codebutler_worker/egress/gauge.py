"""What a model's service says its answers cost, read as they pass: an agent's program tells only of its own questions,
and whatever runs beside it may ask, too. Pure.

Counted are the figures of Anthropic's Messages API and of OpenAI's chat completions, in one piece or streamed. Each
answer has the largest of each: a stream tells running totals. A name in a text has backslashes before its quotes. An
answer without figures (llama.cpp, many gateways) is reckoned by its size: what is not counted would meet no budget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

Side = Literal["input", "cached", "output"]
FIELDS: Mapping[bytes, tuple[Side, ...]] = MappingProxyType(
    {
        b"input_tokens": ("input",),
        b"cache_creation_input_tokens": ("input",),
        b"cache_read_input_tokens": ("input", "cached"),
        b"prompt_tokens": ("input",),
        b"cached_tokens": ("cached",),
        b"output_tokens": ("output",),
        b"completion_tokens": ("output",),
    }
)
_FIGURE = re.compile(rb'"(' + b"|".join(FIELDS) + rb')"\s{0,8}:\s{0,8}([0-9]{1,12})(?=[^0-9])')
_FINE = b"HTTP/1.1 200"
_LONGEST = 72
"""Bytes of a name, its figure and what stands between them."""
FREE = ("/count_tokens",)
"""What answers with figures that nobody pays for."""
PAID = ("/chat/completions", "/messages", "/responses")
"""What is paid for, whether or not it says so."""
BYTES_PER_TOKEN = 4


@dataclass(slots=True)
class Gauge:
    """The tokens of all answers so far; ``cached`` are among the ``input``."""

    input: int = 0
    cached: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """Tokens in and out together; what came from a cache is counted as any other."""
        return self.input + self.output

    def reading(self, path: str, asked_bytes: int = 0) -> Reading | None:
        """For the answer to one request of so many bytes; None if it costs nothing."""
        path = path.partition("?")[0]
        return None if path.endswith(FREE) else Reading(self, asked_bytes, is_paid=path.endswith(PAID))


@dataclass(slots=True)
class Reading:
    """One answer, piece by piece."""

    gauge: Gauge
    asked_bytes: int = 0
    is_paid: bool = False
    _seen: dict[bytes, int] = field(default_factory=dict)
    _end: bytes = b""
    _head: bytes = b""
    _bytes: int = 0
    _events: int = 0

    def add(self, piece: bytes) -> None:
        """It goes on so."""
        self._head = self._head or piece[: len(_FINE)]
        self._bytes += len(piece)
        self._events += piece.count(b"data:")
        data = self._end + piece
        for found in _FIGURE.finditer(data):
            self._count(found[1], int(found[2]))
        self._end = data[-_LONGEST:]

    def end(self) -> None:
        """Nothing more comes. An event of a stream is about a token."""
        if self.is_paid and not self._seen and self._head == _FINE:
            self.gauge.input += self.asked_bytes // BYTES_PER_TOKEN
            self.gauge.output += self._events or self._bytes // BYTES_PER_TOKEN

    def _count(self, name: bytes, figure: int) -> None:
        more = figure - self._seen.get(name, 0)
        if more <= 0:
            return
        self._seen[name] = figure
        for side in FIELDS[name]:
            setattr(self.gauge, side, getattr(self.gauge, side) + more)
