"""The reactions on a person's message that say how far its turn is, and what became of it in the end."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.model import TurnOutcome
from codebutler_worker.desk.draft import Draft, Place, place_of
from codebutler_worker.store.rows import TurnRow

QUEUED = "hourglass_flowing_sand"
WORKING = "eyes"
WAITING = "raised_hand"
DONE = "white_check_mark"
FAILED = "x"
STOPPED = "octagonal_sign"
END_MARKS: Mapping[TurnOutcome, str] = {
    "done": DONE,
    "failed": FAILED,
    "stopped": STOPPED,
    "refused": FAILED,
}
"""What was interrupted has none: its thread asks."""


def show_waiting(draft: Draft, turn: TurnRow, *, over: bool = False) -> None:
    """Show on the first message of a turn that it waits for a person, or (``over``) that it does not any more. It keeps
    the mark of a turn that runs: Slack takes few reactions a minute."""
    for message in draft.uow.messages.of_turn(turn.id)[:1]:
        draft.react(place_of(turn), message.platform_msg_id, WAITING, remove=over)


def swap_reactions(
    draft: Draft, turn: TurnRow, *, remove: tuple[str, ...], name: str = "", after: str | None = None
) -> None:
    """Change the reaction on every message of a turn, once the operation ``after`` is done; the new one comes
    first, so there is always one."""
    place = place_of(turn)
    for message in draft.uow.messages.of_turn(turn.id):
        if name:
            draft.react(place, message.platform_msg_id, name, after=after)
        for old in remove:
            draft.react(place, message.platform_msg_id, old, remove=True, after=after)


def end_turn(
    draft: Draft, turn: TurnRow, outcome: TurnOutcome, *, remove: tuple[str, ...], after: str | None = None
) -> None:
    """The messages of a turn have their outcome: it is told, and shown once the operation ``after`` is done."""
    swap_reactions(draft, turn, remove=remove, name=END_MARKS.get(outcome, ""), after=after)
    messages = draft.uow.messages.of_turn(turn.id)
    draft.ended(place_of(turn), (message.platform_msg_id for message in messages), outcome)


def end_message(
    draft: Draft, place: Place, ts: str, outcome: TurnOutcome, *, after: str | None = None
) -> None:
    """The same for one message, of which no turn came."""
    draft.react(place, ts, END_MARKS[outcome], after=after)
    draft.ended(place, (ts,), outcome)
