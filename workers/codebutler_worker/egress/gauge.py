"""What a model's service says its answers cost, read as they pass: an agent's program tells only of its own questions,
and whatever runs beside it may ask, too. Pure.

Counted are the figures of Anthropic's Messages API and of OpenAI's chat completions, in one piece or streamed. Each
answer has the largest of each: a stream tells running totals. A name in a text has backslashes before its quotes.
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
_LONGEST = 72
"""Bytes of a name, its figure and what stands between them."""
FREE = ("/count_tokens",)
"""What answers with figures that nobody pays for."""


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

    def reading(self, path: str) -> Reading | None:
        """For the answer to one request; None if it costs nothing."""
        return None if path.partition("?")[0].endswith(FREE) else Reading(self)


@dataclass(slots=True)
class Reading:
    """One answer, piece by piece."""

    gauge: Gauge
    _seen: dict[bytes, int] = field(default_factory=dict)
    _end: bytes = b""

    def add(self, piece: bytes) -> None:
        """It goes on so."""
        data = self._end + piece
        for found in _FIGURE.finditer(data):
            self._count(found[1], int(found[2]))
        self._end = data[-_LONGEST:]

    def _count(self, name: bytes, figure: int) -> None:
        more = figure - self._seen.get(name, 0)
        if more <= 0:
            return
        self._seen[name] = figure
        for side in FIELDS[name]:
            setattr(self.gauge, side, getattr(self.gauge, side) + more)
