"""Reminds whoever asked of what waits for a person: after ten minutes, and after an hour.

What is due follows from the rows alone: a reminder is an operation with an id of its own, so no restart forgets one or
says it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from codebutler.domain.actions import RETRY_ACTION
from codebutler.domain.errors import StoreError
from codebutler.platform.waiting import wait_for
from codebutler.text.links import message_link
from codebutler_worker.conversation.approvals import waited_for
from codebutler_worker.conversation.parked import CONTINUED_REASON
from codebutler_worker.conversation.queue import ASIDE
from codebutler_worker.present.calls import QUESTIONS
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso, place_of

AFTER_S = (600.0, 3600.0)
LATE_S = 3600.0
"""A reminder that could not be said for so long is left out."""
LOOK_AGAIN_S = 60.0
"""The longest sleep before the clock is looked at again: it may be set, and the machine may sleep."""
STORE_RETRY_S = 5.0
_ANY_INTERRUPTED = "SELECT EXISTS (SELECT 1 FROM turns WHERE state = 'interrupted' AND finished_at >= ?)"
_NOT_REMINDED = (CONTINUED_REASON, *ASIDE)


@dataclass(frozen=True, slots=True)
class WaitingTurn:
    """A turn that waits for a person since ``since``; ``key`` names what for, ``card`` is the operation that asks."""

    turn: TurnRow
    key: str
    what: str
    since: datetime
    card: str | None


class Reminders:
    """``run`` is its life; a worker for whose turns nobody is to be reminded reads nothing. ``interrupted`` is how many
    turns that do not run are still to be reminded of: asleep, nobody would."""

    def __init__(self, runtime: Runtime, load_changed: Callable[[], None]) -> None:
        self.interrupted = 0
        self._runtime = runtime
        self._load_changed = load_changed
        self._load = (0, 0, 0)
        self._changed = asyncio.Event()

    def look(self, load: tuple[int, int, int]) -> None:
        """There are so many turns running, queued and waiting: look again if others wait than before, or if one of
        those that are to be reminded of may have gone on."""
        if load != self._load and (load[2] or self._load[2] or self.interrupted):
            self._changed.set()
        self._load = load

    async def run(self) -> None:
        """Until cancelled."""
        now = self._runtime.clock.now()
        if await self._runtime.store.exists(_ANY_INTERRUPTED, _oldest(now)):
            self._changed.set()
        next_s: float | None = None
        while True:
            await wait_for(self._runtime.clock, self._changed, next_s)
            self._changed.clear()
            try:
                interrupted, next_s = await self._runtime.commit(remind_due)
            except StoreError as error:
                self._runtime.log("WRN", f"reminders wait for the store: {error}")
                next_s = STORE_RETRY_S
                continue
            if interrupted != self.interrupted:
                self.interrupted = interrupted
                self._load_changed()


def remind_due(uow: UnitOfWork) -> tuple[int, float | None]:
    """Say each reminder whose time has come; returns of how many interrupted turns others are still to come, and the
    seconds until the next look, None if there is nothing to look for."""
    found = [(waiting.turn.state, _remind(uow, waiting)) for waiting in _waiting(uow)]
    ahead = [(state, due_s) for state, due_s in found if due_s is not None]
    interrupted = sum(state == "interrupted" for state, _ in ahead)
    return interrupted, min([LOOK_AGAIN_S, *(due_s for _, due_s in ahead)]) if ahead else None


def _oldest(now: datetime) -> str:
    """Nothing older than this is reminded of."""
    return iso(now - timedelta(seconds=AFTER_S[-1] + LATE_S))


def _waiting(uow: UnitOfWork) -> Iterator[WaitingTurn]:
    for turn in uow.turns.in_states("waiting"):
        for row in waited_for(uow, turn.id)[:1]:
            what = "answer" if row.tool in QUESTIONS else "approval"
            asked_at = datetime.fromisoformat(row.requested_at)
            yield WaitingTurn(turn, row.id, f"your {what}", asked_at, row.message_op_id)
    for turn in uow.turns.interrupted_since(_oldest(uow.now)):
        if turn.reason not in _NOT_REMINDED and turn.finished_at:
            card = uow.outbox.last_offer(turn.id, RETRY_ACTION)
            at = datetime.fromisoformat(turn.finished_at)
            yield WaitingTurn(turn, turn.id, "you: continue or drop it", at, card.op_id if card else None)


def _remind(uow: UnitOfWork, waiting: WaitingTurn) -> float | None:
    """Returns the seconds until the next reminder, None if that was the last one."""
    waited_s = (uow.now - waiting.since).total_seconds()
    due = [after_s for after_s in AFTER_S if after_s <= waited_s <= after_s + LATE_S]
    if due and uow.outbox.get(op_id := f"{waiting.key}:reminder-{due[-1]:g}") is None:
        uow.post(place_of(waiting.turn), _text(uow, waiting), mention=waiting.turn.user_id, op_id=op_id)
    return min((after_s - waited_s for after_s in AFTER_S if after_s > waited_s), default=None)


def _text(uow: UnitOfWork, waiting: WaitingTurn) -> str:
    card = uow.outbox.get(waiting.card) if waiting.card else None
    if card is None or not card.ts:
        return f"✋ Still waiting for {waiting.what}."
    return (
        f"✋ Still waiting for {waiting.what}: {message_link(waiting.turn.channel_id, card.ts, 'see above')}."
    )
