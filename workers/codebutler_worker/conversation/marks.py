"""The marks on people's messages that show their turn's progress and outcome."""

from __future__ import annotations

from collections.abc import Mapping

from codebutler.domain.model import Mark, React, TurnOutcome
from codebutler.domain.refs import MessageRef
from codebutler_worker.store.rows import MessageRow, TurnRow, TurnState
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork, place_of

QUEUED: Mark = "queued"
WORKING: Mark = "working"
WAITING: Mark = "waiting"
END_MARKS: Mapping[str, Mark] = {
    "done": "done",
    "failed": "failed",
    "stopped": "stopped",
    "refused": "failed",
}
"""An interrupted turn has none: its thread asks."""
MARK_AFTER_S = 1.0


def show_waiting(uow: UnitOfWork, turn: TurnRow, *, over: bool = False) -> None:
    """Show on a turn's first message that it waits for a person or, if it is ``over``, no longer does. The
    mark of a running turn stays: chats allow few reactions a minute."""
    for message in uow.messages.find(turn_id=turn.id)[:1]:
        set_mark(uow, place_of(turn), message, WAITING, remove=over)


def show(uow: UnitOfWork, turn: TurnRow, mark: Mark, *, after: str | None = None) -> None:
    """Show on a turn's messages that it is QUEUED and not WORKING, or the other way round, once the operation ``after``
    is done."""
    place, instead_of = place_of(turn), WORKING if mark == QUEUED else QUEUED
    for message in uow.messages.find(turn_id=turn.id):
        set_mark(uow, place, message, mark, after=after)
        set_mark(uow, place, message, instead_of, remove=True, after=after)


def is_shown(uow: UnitOfWork, message: MessageRow, mark: Mark) -> bool:
    """Whether a passing mark is set on a message."""
    return _last(uow, message, mark)[1]


def set_mark(
    uow: UnitOfWork,
    place: ThreadPlace,
    message: MessageRow,
    mark: Mark,
    *,
    remove: bool = False,
    after: str | None = None,
) -> None:
    """Set a passing mark on a message, or remove it. Does nothing if that is so already: chats allow few reactions a
    minute."""
    op_id, is_set = _last(uow, message, mark)
    if is_set == remove:
        change = React(target=message.platform_msg_id, mark=mark, remove=remove)
        uow.add(place, change, after, f"{op_id}:off" if remove else op_id)


def clear_end(uow: UnitOfWork, place: ThreadPlace, message: MessageRow, state: TurnState) -> None:
    """Remove the end mark of a turn that ended in ``state``: work on its message continues."""
    if mark := END_MARKS.get(state):
        uow.add(place, React(target=message.platform_msg_id, mark=mark, remove=True))


def end_turn(uow: UnitOfWork, turn: TurnRow, outcome: TurnOutcome, *, after: str | None = None) -> None:
    """Announce the outcome of a turn's messages, and mark them once the operation ``after`` is done. The end
    mark is set before the others are removed, so there is always one."""
    place, messages = place_of(turn), uow.messages.find(turn_id=turn.id)
    for message in messages:
        if outcome in END_MARKS:
            end = React(target=message.platform_msg_id, mark=END_MARKS[outcome], value="outcome")
            uow.add(place, end, after)
        for passing in (WORKING, QUEUED):
            set_mark(uow, place, message, passing, remove=True, after=after)
    uow.ended(place, (message.platform_msg_id for message in messages), outcome, turn.agent)


def end_message(
    uow: UnitOfWork, place: ThreadPlace, ref: MessageRef, outcome: TurnOutcome, *, after: str | None = None
) -> None:
    """The same for one message that belongs to no turn."""
    uow.add(place, React(target=ref, mark=END_MARKS[outcome], value="outcome"), after)
    uow.ended(place, (ref,), outcome)


def _last(uow: UnitOfWork, message: MessageRow, mark: Mark) -> tuple[str, bool]:
    """The operation that has set the mark, or would set it next, and whether it is set. Operations of passing marks are
    named after their message, so the outbox knows what is there, over restarts too."""
    number = 0
    while uow.outbox.get(op_id := f"{message.id}:{mark}:{number}") is not None:
        if uow.outbox.get(f"{op_id}:off") is None:
            return op_id, True
        number += 1
    return op_id, False
