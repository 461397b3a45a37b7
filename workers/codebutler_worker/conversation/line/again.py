"""Going on where an earlier turn stopped: as a turn of its own, since an agent run is never repeated."""

from __future__ import annotations

import uuid

from codebutler_worker.conversation.line.incoming import key_of
from codebutler_worker.conversation.line.withdrawing import CROWDED, HANDLED, STALE, was_held
from codebutler_worker.desk.draft import Draft
from codebutler_worker.store.rows import TurnRow

CONTINUED_REASON = "continued"
LIMIT = "limit"
LIMITS = ("max_turns", "timeout", "stalled", "auth", "limit", "overloaded")
"""Failures after which there is something to go on with, once their cause is gone."""


def carry_on(draft: Draft, turn: TurnRow, user: str, *, agent: str = "", attempts: int = 0) -> TurnRow:
    """Queue a turn that goes on with ``turn`` on ``user``'s account, and move its messages there.

    ``agent``: another one than before. What becomes of ``turn`` itself is the caller's.
    """
    follow_up = TurnRow(
        id=uuid.uuid4().hex,
        conversation=turn.conversation,
        channel_id=turn.channel_id,
        thread_ts=turn.thread_ts,
        agent=agent or turn.agent,
        created_at=draft.stamp,
        not_before=draft.stamp,
        reason=_why(turn),
        user_id=user,
        attempts=attempts,
        job=turn.job,
    )
    draft.uow.turns.add(follow_up)
    for message in draft.uow.messages.of_turn(turn.id):
        draft.uow.messages.attach(message.channel_id, key_of(message), follow_up.id)
    return follow_up


def _why(turn: TurnRow) -> str:
    """Why the follow-up runs, as its prompt tells the agent."""
    if turn.reason in (CROWDED, HANDLED) or was_held(turn):
        return ""
    if turn.state == "interrupted":
        return STALE if turn.reason == STALE else "interrupted"
    if turn.state == "stopped":
        return "stopped" if turn.started_at else ""
    return LIMIT
