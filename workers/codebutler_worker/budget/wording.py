"""Limits and how much of them is used, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from codebutler.text.amounts import used_of
from codebutler_worker.budget.rules import Line, Scope

WHOSE: Mapping[Scope, str] = MappingProxyType(
    {"repo": "This repository's", "user": "Your", "thread": "This thread's", "job": "This job's"}
)
_NAMES: Mapping[Scope, str] = MappingProxyType(
    {"repo": "repository", "user": "you", "thread": "this thread", "job": "this job"}
)


def used_up_text(line: Line) -> str:
    """Why a turn has to wait, and what could be done about it."""
    return (
        f"{WHOSE[line.scope]} budget for today is used up: {used_of(line.unit, line.used, line.limit)}. "
        f"Raise {line.key} in the configuration to continue sooner."
    )


def overview(lines: Sequence[Line]) -> str:
    """``Budget today: repository $1.20 of $5.00, 3 of 10 turns · you …``; "" without any limit."""
    shown = []
    for scope, name in _NAMES.items():
        parts = [used_of(line.unit, line.used, line.limit) for line in lines if line.scope == scope]
        if parts:
            shown.append(f"{name} {', '.join(parts)}")
    return f"Budget today: {' · '.join(shown)}" if shown else ""
