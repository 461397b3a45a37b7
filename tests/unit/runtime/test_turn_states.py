"""Every pair of state and event: where it leads, or that it leads nowhere."""

from __future__ import annotations

import pytest

from codebutler_worker.runtime.turns import (
    EVENTS,
    LIVE,
    STATES,
    UNFINISHED,
    IllegalMoveError,
    TurnEvent,
    move,
)
from codebutler_worker.store.rows import TurnState

ALLOWED = {
    ("queued", "start"): "running",
    ("queued", "stop"): "stopped",
    ("queued", "park"): "parked",
    ("running", "ask"): "waiting",
    ("running", "finish"): "done",
    ("running", "fail"): "failed",
    ("running", "stop"): "stopped",
    ("running", "interrupt"): "interrupted",
    ("running", "park"): "parked",
    ("waiting", "answered"): "running",
    ("waiting", "finish"): "done",
    ("waiting", "fail"): "failed",
    ("waiting", "stop"): "stopped",
    ("waiting", "interrupt"): "interrupted",
    ("waiting", "park"): "parked",
    ("interrupted", "stop"): "stopped",
    ("parked", "stop"): "stopped",
    ("parked", "start"): "running",
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_move(state: TurnState, event: TurnEvent) -> None:
    expected = ALLOWED.get((state, event))
    if expected is not None:
        assert move(state, event) == expected
        return
    with pytest.raises(IllegalMoveError, match=state):
        move(state, event)


def test_an_interrupted_turn_never_runs_again() -> None:
    assert not {to for (at, _), to in ALLOWED.items() if at == "interrupted"} & set(UNFINISHED)


def test_everything_live_can_be_stopped_and_interrupted() -> None:
    for state in LIVE:
        assert move(state, "stop") == "stopped"
        assert move(state, "interrupt") == "interrupted"
