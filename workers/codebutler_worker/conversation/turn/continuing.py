"""How a conversation's sessions are called with the agents, so that the same thread is found again. Pure over rows."""

from __future__ import annotations

from codebutler_worker.desk.draft import Draft
from codebutler_worker.store.rows import SessionRow, TurnRow

LOOKED_AT = 200


def session_name(draft: Draft, turn: TurnRow) -> str:
    """``slack-<channel>-<thread>``; numbered after a reset, because an agent keeps what it had under a name."""
    channel, _, thread = turn.conversation.partition(":")
    name = f"slack-{channel}-{thread}".removesuffix("-")
    earlier = draft.uow.turns.newest(LOOKED_AT, turn.conversation)
    used = {row.session_id for row in earlier if row.agent == turn.agent and row.session_id}
    return name if not used else f"{name}-{len(used) + 1}"


def keep_session(draft: Draft, turn: TurnRow, session_id: str) -> None:
    """The session with which the conversation goes on; what it has cost so far stays with it."""
    known = draft.uow.sessions.get(turn.conversation, turn.agent)
    draft.uow.sessions.put(
        SessionRow(
            conversation=turn.conversation,
            channel_id=turn.channel_id,
            thread_ts=turn.thread_ts,
            agent=turn.agent,
            session_id=session_id,
            updated_at=draft.stamp,
            total_cost_usd=known.total_cost_usd if known and known.session_id == session_id else 0.0,
        )
    )
