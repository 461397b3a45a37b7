"""Turns that have not started: found by their message, withdrawn, closed, and why they wait."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.message import said
from codebutler_worker.conversation.line.incoming import key_of
from codebutler_worker.conversation.line.marks import end_turn
from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.desk.states import move
from codebutler_worker.store.rows import MessageRow, TurnRow

WITHDRAWN = "withdrawn"
STEERED = "steered"
HELD = "held"
NOT_RUN: Mapping[str, str] = {
    STEERED: "↪ Passed on to the running agent.",
    WITHDRAWN: "🛑 Withdrawn.",
    HELD: "⏸️ Queued with your earlier message.",
}
STALE = "stale"
HANDLED = "handled"
CROWDED = "crowded"
BUDGET = "budget"
ASIDE = (STALE, HANDLED, CROWDED)
"""Why a turn that was never started waits until somebody lets it."""


def withdraw_message(draft: Draft, message: MessageRow) -> None:
    """Take a message out of a turn that has not started; a turn without messages is over."""
    turn_id = message.turn_id
    draft.uow.messages.detach(message.channel_id, key_of(message))
    if turn_id is not None and not draft.uow.messages.of_turn(turn_id):
        close_turn(draft, turn_id, WITHDRAWN)


def withdraw_turn(draft: Draft, turn: TurnRow) -> None:
    """Stop a turn that has not started."""
    close_turn(draft, turn.id, "stopped")
    end_turn(draft, turn, "stopped")


def close_turn(draft: Draft, turn_id: str, reason: str) -> None:
    """Write a turn that will not run (or run on) as stopped."""
    turn = draft.uow.turns.get(turn_id)
    if turn is not None:
        if turn.state in ("queued", "parked") and turn.progress_op_id:
            words = NOT_RUN.get(reason, NOT_RUN[WITHDRAWN])
            draft.edit(place_of(turn), turn.progress_op_id, said(words))
        state = move(turn.state, "stop")
        draft.uow.turns.update(turn_id, state=state, finished_at=draft.stamp, reason=reason)


def waiting_turn(draft: Draft, channel: str, ts: str) -> tuple[MessageRow, TurnRow] | None:
    """A message and its turn, if that has not started yet (or waits for an answer whether it shall)."""
    message = draft.uow.messages.get(channel, ts)
    if message is None or message.turn_id is None:
        return None
    turn = draft.uow.turns.get(message.turn_id)
    waits = turn is not None and (turn.state == "queued" or is_aside(turn) or was_held(turn))
    return (message, turn) if turn is not None and waits else None


def is_aside(turn: TurnRow) -> bool:
    """Whether it has not started and does so only when somebody lets it."""
    return turn.state == "interrupted" and turn.reason in ASIDE


def was_held(turn: TurnRow) -> bool:
    """Whether it was parked before it could start."""
    return turn.state == "parked" and turn.started_at is None
