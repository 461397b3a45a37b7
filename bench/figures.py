"""What a measurement yields: a figure, the limit or peer it is held to, and the verdict. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from msgspec import Struct


class Figure(Struct, frozen=True, kw_only=True):
    """One measured value beside what it is held to, both in ``unit``.

    ``reach`` is the greatest ratio of the two that is good enough.
    """

    what: str
    measured: float
    against: float
    against_what: str
    unit: str = "ms"
    reach: float = 1.0

    @property
    def ratio(self) -> float:
        """Measured over what it is held to; nothing at all against nothing is 0."""
        if self.against == 0:
            return 0.0 if self.measured == 0 else math.inf
        return self.measured / self.against

    @property
    def reached(self) -> bool:
        """Whether the ratio is small enough."""
        return self.ratio <= self.reach


def limit(what: str, measured: float, at_most: float, unit: str = "ms") -> Figure:
    """A figure held to a fixed limit."""
    return Figure(what=what, measured=measured, against=at_most, against_what="limit", unit=unit)


def median(values: Sequence[float]) -> float:
    """Raises StatisticsError for no values."""
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that ``percent`` of all do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def table(figures: Sequence[Figure]) -> str:
    """The figures for people, one line each."""
    head = ("what", "measured", "against", "ratio", "reach", "")
    rows = [head, *map(_row, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows)


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.what,
        f"{figure.measured:.2f} {figure.unit}",
        f"{figure.against:.2f} {figure.unit} ({figure.against_what})",
        f"{figure.ratio:.2f}",
        f"≤ {figure.reach:g}",
        "reached" if figure.reached else "MISSED",
    )
