"""Limits and how much of them is used, in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from codebutler_worker.budget.rules import Line, Scope, Unit
from codebutler_worker.present.lines import count, money, span, thousands

WHOSE: Mapping[Scope, str] = MappingProxyType(
    {
        "repo": "this repository's",
        "user": "your",
        "thread": "this thread's",
        "job": "this job's",
    }
)
_SHOWN: Mapping[Unit, Callable[[float], str]] = MappingProxyType(
    {
        "usd": money,
        "tokens": lambda number: f"{thousands(int(number))} tokens",
        "turns": lambda number: count(int(number), "turn"),
        "minutes": lambda minutes: span(minutes * 60),
    }
)


def used_of(line: Line) -> str:
    """``$1.20 of $5.00``."""
    return f"{_SHOWN[line.unit](line.used)} of {_SHOWN[line.unit](line.limit)}"


def used_up_text(line: Line) -> str:
    """Why a turn has to wait, and what could be done about it."""
    return (
        f"{WHOSE[line.scope].capitalize()} budget for today is used up: {used_of(line)}. "
        f"A higher {line.key} in the configuration lets it go on sooner."
    )


def overview(lines: Sequence[Line]) -> str:
    """``budget today: repo $1.20 of $5.00, 3 turns of 10 turns · you …``; "" without any limit."""
    shown = []
    for scope, name in (
        ("repo", "repository"),
        ("user", "you"),
        ("thread", "this thread"),
        ("job", "this job"),
    ):
        parts = [used_of(line) for line in lines if line.scope == scope]
        if parts:
            shown.append(f"{name} {', '.join(parts)}")
    return f"Budget today: {' · '.join(shown)}" if shown else ""
