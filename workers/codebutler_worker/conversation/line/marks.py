"""The reactions on a person's message that say how far its turn is."""

from __future__ import annotations

from codebutler_worker.desk.draft import Draft, place_of
from codebutler_worker.store.rows import TurnRow

QUEUED = "hourglass_flowing_sand"
WORKING = "eyes"
WAITING = "raised_hand"
DONE = "white_check_mark"
FAILED = "x"
STOPPED = "octagonal_sign"


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
