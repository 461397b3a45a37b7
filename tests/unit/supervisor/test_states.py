from __future__ import annotations

import itertools
from typing import get_args

import pytest

from codebutler.supervisor.lifecycle import MOVES, PublicState, WorkerState, move, public

STATES: tuple[WorkerState, ...] = get_args(WorkerState)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(STATES, STATES)))
def test_every_pair_of_states_is_decided(old: WorkerState, new: WorkerState) -> None:
    if new in MOVES[old]:
        assert move(old, new) == new
    else:
        with pytest.raises(ValueError, match=f"{old} cannot become {new}"):
            move(old, new)


def test_every_state_can_be_reached_and_left() -> None:
    assert set(MOVES) == set(STATES)
    assert set().union(*MOVES.values()) == set(STATES)
    assert all(MOVES.values())


def test_every_state_may_end_as_stopped() -> None:
    assert [state for state in STATES if state != "stopped" and "stopped" not in MOVES[state]] == []


def test_no_worker_runs_without_having_started() -> None:
    assert {old for old in STATES if "running" in MOVES[old]} == {"starting"}


def test_the_public_states_are_the_contracts() -> None:
    assert {public(state) for state in STATES} == set(get_args(PublicState))
