"""How long a soak lasts and how rough it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

# How often each kind comes, relative to the others.
WEIGHTS: Mapping[str, int] = MappingProxyType(
    {
        "kill worker": 10,
        "stop worker": 1,
        "kill fork server": 1,
        "kill agent": 4,
        "kill supervisor": 2,
        "end supervisor": 1,
        "cut socket": 5,
        "socket: warning": 1,
        "socket: refresh_requested": 3,
        "socket: too_many_websockets": 1,
        "slack: rate_limit": 4,
        "slack: status": 4,
        "slack: error": 4,
        "slack: delay": 4,
        "slack: reset": 4,
        "slack: lost": 4,
        "slack: hang": 1,
    }
)

PLAIN: Mapping[str, int] = MappingProxyType({"plain": 6, "wait": 4})
MIX: Mapping[str, int] = MappingProxyType(
    {**PLAIN, "post": 1, "file": 1, "paper": 1, "delete": 1, "edit": 2, "timer": 1}
)
"""What people ask for (``asks``), and how often."""


@dataclass(frozen=True)
class Plan:
    """``pause_s``: how long a person thinks between messages, on average; ``fault_s``: between faults.

    ``seconds`` at least; it goes on until there are so many ``messages`` and ``kinds`` of faults: how fast these come
    depends on the machine. ``settle_s``: how long it may take at the end until one more message has its outcome.
    """

    seconds: float = 180.0
    messages: int = 0
    kinds: int = 0
    repos: int = 20
    pause_s: float = 45.0
    fault_s: float = 1.5
    settle_s: float = 120.0
    seed: int = 0
    weights: Mapping[str, int] = field(default_factory=lambda: WEIGHTS)
    mix: Mapping[str, int] = field(default_factory=lambda: MIX)


def short() -> Plan:
    """Fits into the test suite; without the faults that take longer than it does."""
    slow = {"stop worker", "slack: hang"}
    weights = {kind: weight for kind, weight in WEIGHTS.items() if kind not in slow}
    return Plan(
        seconds=18.0, messages=10, kinds=4, repos=5, pause_s=4.0, fault_s=1.0, weights=weights, mix=PLAIN
    )
