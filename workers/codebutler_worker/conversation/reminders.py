"""Reminders of what waits for people, after ten minutes and after an hour.

What is due follows from the rows alone: a reminder is an operation with a fixed ID, so no restart loses or
repeats one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from codebutler.domain.errors import StoreError
from codebutler.domain.message import RETRY_ACTION
from codebutler.platform.tasks import wait_for
from codebutler.text.markup import message_link
from codebutler_worker.conversation.approvals import waited_for
from codebutler_worker.conversation.parked import ASKED, CONTINUED_REASON
from codebutler_worker.conversation.queue import UNCONFIRMED
from codebutler_worker.present.calls import QUESTIONS
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso, place_of

AFTER_S = (600.0, 3600.0)
LATE_S = 3600.0
"""A reminder later than this is left out."""
LOOK_AGAIN_S = 60.0
"""The longest sleep before the clock is checked again: it may be set, and the machine may sleep."""
STORE_RETRY_S = 5.0
_ANY_INTERRUPTED = (
    "SELECT EXISTS (SELECT 1 FROM turns WHERE state IN ('interrupted', 'parked') AND finished_at >= ?)"
)
_NOT_REMINDED = (CONTINUED_REASON, *UNCONFIRMED)


class WaitingTurn(Struct, frozen=True):
    """A turn that waits for a person since ``since``; ``key`` names the question, ``card`` is the operation
    that asks."""

    turn: TurnRow
    key: str
    what: str
    since: datetime
    card: str | None


class Reminders:
    """Reminds people. ``run`` is its life; without configured reminders it reads nothing. ``interrupted`` is
    how many turns that do not run still need reminders: a sleeping worker would send none."""

    def __init__(self, runtime: Runtime, load_changed: Callable[[], None]) -> None:
        self.interrupted = 0
        self._runtime = runtime
        self._load_changed = load_changed
        self._load = (0, 0, 0)
        self._changed = asyncio.Event()

    def look(self, load: tuple[int, int, int]) -> None:
        """This many turns are running, queued and waiting: look again if others wait than before, or if a
        turn with a reminder may have continued."""
        if load != self._load and (load[2] or self._load[2] or self.interrupted):
            self._changed.set()
        self._load = load

    async def run(self) -> None:
        """Run until cancelled."""
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
                self._runtime.log("WRN", f"reminders are waiting for the store: {error}")
                next_s = STORE_RETRY_S
                continue
            if interrupted != self.interrupted:
                self.interrupted = interrupted
                self._load_changed()


def remind_due(uow: UnitOfWork) -> tuple[int, float | None]:
    """Post each due reminder; returns how many interrupted turns have more to come, and the seconds until the
    next look, None if there is none."""
    found = [(waiting.turn.state, _remind(uow, waiting)) for waiting in _waiting(uow)]
    ahead = [(state, due_s) for state, due_s in found if due_s is not None]
    interrupted = sum(state == "interrupted" for state, _ in ahead)
    return interrupted, min([LOOK_AGAIN_S, *(due_s for _, due_s in ahead)]) if ahead else None


def _oldest(now: datetime) -> str:
    """Older ones get no reminder."""
    return iso(now - timedelta(seconds=AFTER_S[-1] + LATE_S))


def _waiting(uow: UnitOfWork) -> Iterator[WaitingTurn]:
    for turn in uow.turns.find(state="waiting"):
        for row in waited_for(uow, turn.id)[:1]:
            what = "answer" if row.tool in QUESTIONS else "approval"
            asked_at = datetime.fromisoformat(row.requested_at)
            yield WaitingTurn(turn, row.id, f"your {what}", asked_at, row.message_op_id)
    for turn in uow.turns.find(state="parked"):
        if turn.reason == ASKED and turn.finished_at:
            at = datetime.fromisoformat(turn.finished_at)
            yield WaitingTurn(turn, turn.id, "you: say how to continue", at, turn.progress_op_id)
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
    card = uow.outbox.get(waiting.card)
    if card is None or not card.ref:
        return f"✋ Still waiting for {waiting.what}."
    return f"✋ Still waiting for {waiting.what}: {message_link(waiting.turn.channel_id, card.ref, 'see above')}."
