"""The reactions on a person's message that say how far its turn is, and what became of it in the end."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.domain.model import React, TurnOutcome
from codebutler_worker.store.rows import MessageRow, TurnRow, TurnState
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

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


def show_waiting(uow: UnitOfWork, turn: TurnRow, *, over: bool = False) -> None:
    """Show on the first message of a turn that it waits for a person, or (``over``) that it does not any more. It keeps
    the mark of a turn that runs: chats take few reactions a minute."""
    change = clear_mark if over else set_mark
    for message in uow.messages.of_turn(turn.id)[:1]:
        change(uow, place_of(turn), message, WAITING)


def show_queued(uow: UnitOfWork, turn: TurnRow, *, after: str | None = None) -> None:
    """Show on a turn's messages that it waits, and works no more, once the operation ``after`` is done."""
    _show(uow, turn, QUEUED, instead_of=WORKING, after=after)


def show_working(uow: UnitOfWork, turn: TurnRow) -> None:
    """Show on a turn's messages that it works, and waits no more."""
    _show(uow, turn, WORKING, instead_of=QUEUED)


def is_shown(uow: UnitOfWork, message: MessageRow, name: str) -> bool:
    """Whether a passing mark is set on a message."""
    return _last(uow, message, name)[1]


def set_mark(
    uow: UnitOfWork, place: ThreadPlace, message: MessageRow, name: str, *, after: str | None = None
) -> None:
    """Set a passing mark on a message, if it is not there."""
    op_id, there = _last(uow, message, name)
    if not there:
        uow.react(place, React(target_ts=message.platform_msg_id, name=name), after=after, op_id=op_id)


def clear_mark(
    uow: UnitOfWork, place: ThreadPlace, message: MessageRow, name: str, *, after: str | None = None
) -> None:
    """Take a passing mark away, if it is there: chats take few reactions a minute."""
    op_id, there = _last(uow, message, name)
    if there:
        off = React(target_ts=message.platform_msg_id, name=name, remove=True)
        uow.react(place, off, after=after, op_id=f"{op_id}:off")


def clear_end(uow: UnitOfWork, place: ThreadPlace, message: MessageRow, state: TurnState) -> None:
    """Take away the end mark of a turn that ended in ``state``: its message is worked on again."""
    if name := END_MARKS.get(state):
        uow.react(place, React(target_ts=message.platform_msg_id, name=name, remove=True))


def end_turn(uow: UnitOfWork, turn: TurnRow, outcome: TurnOutcome, *, after: str | None = None) -> None:
    """Tell the outcome of a turn's messages, and mark them once the operation ``after`` is done. The end mark is set
    before the others are removed, so there is always one."""
    place, messages = place_of(turn), uow.messages.of_turn(turn.id)
    for message in messages:
        if outcome in END_MARKS:
            _show_end(uow, place, message.platform_msg_id, outcome, after)
        for passing in (WORKING, QUEUED):
            clear_mark(uow, place, message, passing, after=after)
    uow.ended(place, (message.platform_msg_id for message in messages), outcome)


def end_message(
    uow: UnitOfWork, place: ThreadPlace, ts: str, outcome: TurnOutcome, *, after: str | None = None
) -> None:
    """The same for one message, of which no turn came."""
    _show_end(uow, place, ts, outcome, after)
    uow.ended(place, (ts,), outcome)


def _show_end(uow: UnitOfWork, place: ThreadPlace, ts: str, outcome: TurnOutcome, after: str | None) -> None:
    uow.react(place, React(target_ts=ts, name=END_MARKS[outcome], value="outcome"), after=after)


def _show(uow: UnitOfWork, turn: TurnRow, name: str, *, instead_of: str, after: str | None = None) -> None:
    place = place_of(turn)
    for message in uow.messages.of_turn(turn.id):
        set_mark(uow, place, message, name, after=after)
        clear_mark(uow, place, message, instead_of, after=after)


def _last(uow: UnitOfWork, message: MessageRow, name: str) -> tuple[str, bool]:
    """The operation that has set the mark, or would set it next, and whether it is set. Operations of passing marks are
    named after their message, so the outbox knows what is there, over restarts too."""
    number = 0
    while uow.outbox.get(op_id := f"{message.id}:{name}:{number}") is not None:
        if uow.outbox.get(f"{op_id}:off") is None:
            return op_id, True
        number += 1
    return op_id, False
