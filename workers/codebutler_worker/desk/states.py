"""The life of a turn, as data. Pure.

A turn is written into its new state before anything is done about it: a crash finds the truth on disk. An
agent run cannot be repeated: a turn that was running when its worker died is *interrupted*, and a person
decides what becomes of it. One whose agent was refused by its service, or for which a budget leaves no room, is
*parked* until the service takes it again, or a new day begins: another turn then goes on with it.
"""

from __future__ import annotations

from typing import Literal, get_args

from codebutler.domain.errors import CodeButlerError
from codebutler_worker.store.rows import TurnState

TurnEvent = Literal["start", "ask", "answered", "finish", "fail", "stop", "interrupt", "park"]

STATES: tuple[TurnState, ...] = get_args(TurnState)
EVENTS: tuple[TurnEvent, ...] = get_args(TurnEvent)
LIVE: tuple[TurnState, ...] = ("running", "waiting")
UNFINISHED: tuple[TurnState, ...] = ("queued", "running", "waiting", "parked")

MOVES: dict[TurnState, dict[TurnEvent, TurnState]] = {
    "queued": {"start": "running", "stop": "stopped", "park": "parked"},
    "running": {
        "ask": "waiting",
        "finish": "done",
        "fail": "failed",
        "stop": "stopped",
        "interrupt": "interrupted",
        "park": "parked",
    },
    "waiting": {
        "answered": "running",
        "finish": "done",
        "fail": "failed",
        "stop": "stopped",
        "interrupt": "interrupted",
        "park": "parked",
    },
    "interrupted": {"stop": "stopped"},
    # Begun only in a store that was restored: whether it went on since is not known, so a person is asked.
    "parked": {"stop": "stopped", "start": "running"},
    "done": {},
    "failed": {},
    "stopped": {},
}


class IllegalMoveError(CodeButlerError):
    """A turn cannot go there from where it is."""


def move(state: str, event: TurnEvent) -> TurnState:
    """The state after ``event``. Raises IllegalMoveError where the life of a turn knows no such move."""
    for known, moves in MOVES.items():
        if known == state and event in moves:
            return moves[event]
    raise IllegalMoveError(f"a {state} turn cannot take {event!r}")
