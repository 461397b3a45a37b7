"""A turn in one line, as lists show it."""

from __future__ import annotations

from datetime import datetime

from codebutler.text.markup import message_link, plain
from codebutler_worker.desk.draft import Draft
from codebutler_worker.present.lines import one_line, span
from codebutler_worker.present.progress import SIGNS
from codebutler_worker.store.rows import TurnRow, TurnState

WORDS_CHARS = 80
_SIGNS: dict[TurnState, str] = {
    "queued": "⏳",
    "running": "👀",
    "waiting": "🔐",
    "parked": "⏸",
    "done": SIGNS["done"],
    "failed": SIGNS["failed"],
    "stopped": SIGNS["stopped"],
    "interrupted": SIGNS["interrupted"],
}


def turn_line(draft: Draft, turn: TurnRow) -> str:
    """Sign, state, agent, the first words with a link to the thread, and how long ago."""
    words = plain(words_of(draft, turn, WORDS_CHARS)) or "…"
    where = message_link(turn.channel_id, turn.thread_ts, words) if turn.thread_ts else words
    sign = _SIGNS.get(turn.state, "•")
    return f"{sign} {turn.state} · {plain(turn.agent)} · {where} · {age(draft, turn)}"


def words_of(draft: Draft, turn: TurnRow, limit: int) -> str:
    """The first words of what the turn was asked."""
    messages = draft.uow.messages.of_turn(turn.id)
    return one_line(messages[0].content, limit) if messages else ""


def age(draft: Draft, turn: TurnRow) -> str:
    """How long ago the turn's last move was: ``4m12s ago``, or for how long it runs."""
    moment = turn.finished_at or turn.started_at or turn.created_at
    seconds = (draft.now - datetime.fromisoformat(moment)).total_seconds()
    shown = span(seconds) if seconds < 86_400 else f"{int(seconds // 86_400)}d"
    return f"for {shown}" if turn.state in ("running", "waiting") else f"{shown} ago"
