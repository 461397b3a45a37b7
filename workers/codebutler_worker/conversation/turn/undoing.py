"""Undoing a turn is a turn too: it waits for its place, is recorded, and can itself be undone."""

from __future__ import annotations

import uuid

from codebutler.message import said
from codebutler.text.markup import plain
from codebutler_worker.conversation.turn.trees import undo_key
from codebutler_worker.desk.draft import Draft, Place
from codebutler_worker.desk.naming import UNDO
from codebutler_worker.desk.states import LIVE
from codebutler_worker.present.lines import one_line
from codebutler_worker.present.undo import ALREADY, BUSY, UNDOING
from codebutler_worker.store.rows import MessageRow, TurnRow, message_id

WORDS_CHARS = 60


def undo(draft: Draft, turn: TurnRow, user: str, place: Place, card_ts: str) -> None:
    """Queue the undoing of ``turn``, once; its card, at ``card_ts`` in ``place``, says so. Nothing else may be
    running: it could be writing."""
    key = undo_key(turn.id)
    if turn.tree_before is None or draft.uow.messages.get(turn.channel_id, key) is not None:
        draft.post(place, ALREADY)
        return
    if draft.uow.turns.in_states(*LIVE):
        draft.post(place, BUSY)
        return
    messages = draft.uow.messages.of_turn(turn.id)
    words = one_line(messages[0].content, WORDS_CHARS) if messages else "…"
    undoing = TurnRow(
        id=uuid.uuid4().hex,
        conversation=turn.conversation,
        channel_id=turn.channel_id,
        thread_ts=place.thread_ts or "",
        agent=UNDO,
        created_at=draft.stamp,
        not_before=draft.stamp,
        user_id=user,
    )
    draft.uow.turns.add(undoing)
    draft.uow.messages.add(
        MessageRow(
            id=message_id(turn.channel_id, key),
            from_id=user,
            channel_id=turn.channel_id,
            content=f"undo: {words}",
            timestamp=draft.stamp,
            thread_ts=undoing.thread_ts,
            turn_id=undoing.id,
            agent=UNDO,
        )
    )
    draft.edit_ts(place, card_ts, said(UNDOING.format(words=plain(words))))
