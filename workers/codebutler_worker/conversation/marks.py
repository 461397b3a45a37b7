"""The reactions on a person's message that say how far its turn is, and what became of it in the end."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.domain.model import React, TurnOutcome
from codebutler_worker.desk.draft import Draft, Place, place_of
from codebutler_worker.store.rows import MessageRow, TurnRow, TurnState

QUEUED = "hourglass_flowing_sand"
WORKING = "eyes"
WAITING = "raised_hand"
DONE = "white_check_mark"
FAILED = "x"
STOPPED = "octagonal_sign"
END_MARKS: Mapping[str, str] = {
    "done": DONE,
    "failed": FAILED,
    "stopped": STOPPED,
    "refused": FAILED,
}
"""What was interrupted has none: its thread asks."""


def show_waiting(draft: Draft, turn: TurnRow, *, over: bool = False) -> None:
    """Show on the first message of a turn that it waits for a person, or (``over``) that it does not any more. It keeps
    the mark of a turn that runs: chats take few reactions a minute."""
    change = clear_mark if over else set_mark
    for message in draft.uow.messages.of_turn(turn.id)[:1]:
        change(draft, place_of(turn), message, WAITING)


def show_queued(draft: Draft, turn: TurnRow, *, after: str | None = None) -> None:
    """Show on a turn's messages that it waits, and works no more, once the operation ``after`` is done."""
    _show(draft, turn, QUEUED, instead_of=WORKING, after=after)


def show_working(draft: Draft, turn: TurnRow) -> None:
    """Show on a turn's messages that it works, and waits no more."""
    _show(draft, turn, WORKING, instead_of=QUEUED)


def is_shown(draft: Draft, message: MessageRow, name: str) -> bool:
    """Whether a passing mark is set on a message."""
    return _last(draft, message, name)[1]


def set_mark(draft: Draft, place: Place, message: MessageRow, name: str, *, after: str | None = None) -> None:
    """Set a passing mark on a message, if it is not there."""
    op_id, there = _last(draft, message, name)
    if not there:
        draft.react(place, React(target_ts=message.platform_msg_id, name=name), after=after, op_id=op_id)


def clear_mark(
    draft: Draft, place: Place, message: MessageRow, name: str, *, after: str | None = None
) -> None:
    """Take a passing mark away, if it is there: chats take few reactions a minute."""
    op_id, there = _last(draft, message, name)
    if there:
        off = React(target_ts=message.platform_msg_id, name=name, remove=True)
        draft.react(place, off, after=after, op_id=f"{op_id}:off")


def clear_end(draft: Draft, place: Place, message: MessageRow, state: TurnState) -> None:
    """Take away the end mark of a turn that ended in ``state``: its message is worked on again."""
    if name := END_MARKS.get(state):
        draft.react(place, React(target_ts=message.platform_msg_id, name=name, remove=True))


def end_turn(draft: Draft, turn: TurnRow, outcome: TurnOutcome, *, after: str | None = None) -> None:
    """The messages of a turn have their outcome: it is told, and shown once the operation ``after`` is done. The end
    mark comes first, so there is always one."""
    place, messages = place_of(turn), draft.uow.messages.of_turn(turn.id)
    for message in messages:
        if outcome in END_MARKS:
            _show_end(draft, place, message.platform_msg_id, outcome, after)
        for passing in (WORKING, QUEUED):
            clear_mark(draft, place, message, passing, after=after)
    draft.ended(place, (message.platform_msg_id for message in messages), outcome)


def end_message(
    draft: Draft, place: Place, ts: str, outcome: TurnOutcome, *, after: str | None = None
) -> None:
    """The same for one message, of which no turn came."""
    _show_end(draft, place, ts, outcome, after)
    draft.ended(place, (ts,), outcome)


def _show_end(draft: Draft, place: Place, ts: str, outcome: TurnOutcome, after: str | None) -> None:
    draft.react(place, React(target_ts=ts, name=END_MARKS[outcome], value="outcome"), after=after)


def _show(draft: Draft, turn: TurnRow, name: str, *, instead_of: str, after: str | None = None) -> None:
    place = place_of(turn)
    for message in draft.uow.messages.of_turn(turn.id):
        set_mark(draft, place, message, name, after=after)
        clear_mark(draft, place, message, instead_of, after=after)


def _last(draft: Draft, message: MessageRow, name: str) -> tuple[str, bool]:
    """The operation that has set the mark, or would set it next, and whether it is set. Operations of passing marks are
    named after their message, so the outbox knows what is there, over restarts too."""
    number = 0
    while draft.uow.outbox.get(op_id := f"{message.id}:{name}:{number}") is not None:
        if draft.uow.outbox.get(f"{op_id}:off") is None:
            return op_id, True
        number += 1
    return op_id, False
