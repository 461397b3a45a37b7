"""Messages that no agent has read: their turn was ended before the agent took it. The conversation's next turn tells
them, within one transaction."""

from __future__ import annotations

from codebutler_worker.desk.draft import Draft
from codebutler_worker.desk.handover import LOOKED_BACK
from codebutler_worker.store.rows import TurnRow

ENDED = ("stopped", "failed", "interrupted")


def unread(draft: Draft, turn: TurnRow) -> tuple[TurnRow, ...]:
    """The turns of the same agent just before ``turn`` whose messages it has not read, oldest first."""
    found: list[TurnRow] = []
    for earlier in draft.uow.turns.newest(LOOKED_BACK, turn.conversation):
        rows = draft.uow.messages.of_turn(earlier.id)
        # A turn that never began was withdrawn by somebody; one without messages has handed them on.
        if earlier.id == turn.id or earlier.agent != turn.agent or earlier.started_at is None or not rows:
            continue
        if earlier.state not in ENDED or all(row.acked for row in rows):
            break
        found.append(earlier)
    return tuple(reversed(found))


def forget_unread(draft: Draft, conversation: str) -> None:
    """Nobody shall be told any more what was said before."""
    for earlier in draft.uow.turns.newest(LOOKED_BACK, conversation):
        if earlier.state in ENDED:
            draft.uow.messages.acknowledge(
                (row.id, row.content) for row in draft.uow.messages.of_turn(earlier.id)
            )
