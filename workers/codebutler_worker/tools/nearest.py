"""The lines of a file that are most like a text that is not in it, for whoever looked for it. Pure."""

from __future__ import annotations

from codebutler_worker.tools.display import clipped

AROUND = 2
MOST_SHOWN = 40
MOST_LINES = 20_000
LINE_CHARS = 200
LIKE = 0.3
"""Below that two lines have nothing to do with one another."""


def nearest(text: str, old: str) -> str:
    """Those lines with their numbers, "" if none are like it."""
    sought = [line for line in old.split("\n") if line.strip()]
    lines = [line.removesuffix("\r") for line in text.split("\n")[:MOST_LINES]]
    if not sought:
        return ""
    # The line that says most stands for all of them.
    at, anchor = max(enumerate(old.split("\n")), key=lambda one: len(one[1].strip()))
    wanted = _pieces(anchor)
    scored = ((_likeness(wanted, _pieces(line)), -number) for number, line in enumerate(lines))
    likeness, best = max(scored, default=(0.0, 0))
    if likeness < LIKE:
        return ""
    first = max(0, -best - at - AROUND)
    last = min(len(lines), -best - at + len(old.split("\n")) + AROUND, first + MOST_SHOWN)
    last = max(last, min(len(lines), -best + 1))
    first = max(first, last - MOST_SHOWN)
    shown = "\n".join(f"{number + 1}\t{clipped(lines[number], LINE_CHARS)}" for number in range(first, last))
    return f"The nearest lines:\n{shown}"


def _pieces(line: str) -> frozenset[str]:
    plain = " ".join(line[:LINE_CHARS].lower().split())
    return frozenset(plain[at : at + 3] for at in range(max(1, len(plain) - 2))) if plain else frozenset()


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0
