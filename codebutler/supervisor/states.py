"""The states of a worker and the moves between them, as data. Pure.

``sleeping`` is not a fault: an idle worker's process has ended and the next event starts it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

WorkerState = Literal["stopped", "starting", "running", "stopping", "sleeping", "backoff", "quarantined"]
PublicState = Literal["stopped", "starting", "running", "sleeping", "backoff", "quarantined"]

STATES: tuple[WorkerState, ...] = get_args(WorkerState)

MOVES: Mapping[WorkerState, frozenset[WorkerState]] = MappingProxyType(
    {
        "stopped": frozenset({"starting"}),
        "starting": frozenset({"running", "stopping", "backoff", "quarantined", "stopped"}),
        "running": frozenset({"stopping", "backoff", "quarantined", "stopped"}),
        "stopping": frozenset({"sleeping", "backoff", "quarantined", "stopped"}),
        "sleeping": frozenset({"starting", "stopped"}),
        "backoff": frozenset({"starting", "stopped"}),
        "quarantined": frozenset({"starting", "stopped"}),
    }
)

WITH_PROCESS: frozenset[WorkerState] = frozenset({"starting", "running", "stopping"})


def move(old: WorkerState, new: WorkerState) -> WorkerState:
    """``new``, if it may follow ``old``. Raises ValueError: a wrong move is a fault of ours."""
    if new not in MOVES[old]:
        raise ValueError(f"a worker that is {old} cannot become {new}")
    return new


def public(state: WorkerState) -> PublicState:
    """The state as `codebutler status` shows it: a worker that is being stopped still runs."""
    return "running" if state == "stopping" else state
