"""Small pieces of text that people read, the same everywhere: one line, a count, a span of time, load and daily usage.
Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

Unit = Literal["usd", "tokens", "turns", "minutes"]
"""As the configuration counts (``turnsPerDay``). People read "runs" for turns: one run of an agent."""

LINE_LIMIT = 150


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """The text as one line of at most ``limit`` characters; a cut shows as an ellipsis."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 1].rstrip() + "…"


def tidied(text: str) -> str:
    """The text without blank lines at its ends, and with at most one in a row."""
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def span(seconds: float) -> str:
    """``34s``, ``2m05s``, ``1h02m``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def count(number: int, noun: str) -> str:
    """``1 tool``, ``3 tools``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``3rd``, ``11th``."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def load(running: int, waiting: int, queued: int, parked: int = 0) -> str:
    """``1 running, 0 waiting, 2 queued (1 parked)``: the runs of a repository. ``parked`` ones count as queued."""
    aside = f" ({parked} parked)" if parked else ""
    return f"{running} running, {waiting} waiting, {queued} queued{aside}"


def today(used: Mapping[str, float], limits: Mapping[Unit, float]) -> str:
    """``3 of 10 runs, 12.3k tokens, $0.12``: a repository's usage today (``runs``, ``tokens``, ``usd`` and
    ``minutes``), each with its limit if it has one. Runs are always shown, the others if they are not zero."""
    units: dict[Unit, float] = {
        "turns": used["runs"],
        "tokens": used["tokens"],
        "usd": used["usd"],
        "minutes": used["minutes"],
    }
    shown = []
    for unit, number in units.items():
        if unit in limits:
            shown.append(used_of(unit, number, limits[unit]))
        elif unit == "turns" or (unit != "minutes" and number > 0):
            shown.append(amount(unit, number))
    return ", ".join(shown)


def amount(unit: Unit, number: float) -> str:
    """``$1.20``, ``1.2M tokens``, ``1 run``, ``1h05m``, ``9 s``."""
    match unit:
        case "usd":
            return "<$0.01" if 0 < number < 0.005 else f"${number:.2f}"
        case "tokens":
            return f"{thousands(int(number))} tokens"
        case "turns":
            return f"{int(number)} run{'' if int(number) == 1 else 's'}"
    if 0 < number < 1:
        return f"{max(1, round(number * 60))} s"
    minutes = round(number)
    return (
        f"{minutes // 60}h{minutes % 60:02d}m"
        if minutes >= 60
        else f"{number:.1f}".removesuffix(".0") + " min"
    )


def used_of(unit: Unit, used: float, limit: float) -> str:
    """``$1.20 of $5.00``, ``3 of 10 runs``."""
    shown = amount(unit, used).partition(" ")[0] if unit in ("tokens", "turns") else amount(unit, used)
    return f"{shown} of {amount(unit, limit)}"


def thousands(number: int) -> str:
    """``950``, ``12.3k``, ``1.2M``: a count that is not needed to the last digit."""
    if number < 1000:
        return str(number)
    value, unit = (number / 1000, "k") if number < 999_950 else (number / 1_000_000, "M")
    return f"{value:.1f}{unit}"


def format_size(size_bytes: int) -> str:
    """``900 B``, ``12 kB``, ``3.4 MB``, ``5.0 GB``."""
    if size_bytes < 1000:
        return f"{size_bytes} B"
    if size_bytes < 1_000_000:
        return f"{size_bytes // 1000} kB"
    if size_bytes < 1_000_000_000:
        return f"{size_bytes / 1_000_000:.1f} MB"
    return f"{size_bytes / 1_000_000_000:.1f} GB"
