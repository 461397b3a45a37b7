"""Unasked reports: the newest turns and today's use go to the parent, for App Home; and people get reminders
of what waits for them, after ten minutes and after an hour.

What is due follows from the rows alone: a reminder is an operation with a fixed ID, so no restart loses or
repeats one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from msgspec import Struct

from codebutler.config.section import BudgetSection
from codebutler.domain.errors import StoreError
from codebutler.domain.message import RETRY_ACTION
from codebutler.domain.model import Asked, TurnNote
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.platform.tasks import wait_for
from codebutler.protocol.messages import Budget, LimitUse, Overview
from codebutler.text.markup import message_link
from codebutler.text.wording import one_line
from codebutler_worker.conversation.approvals import waited_for
from codebutler_worker.conversation.parked import ASKED, CONTINUED_REASON
from codebutler_worker.conversation.queue import UNCONFIRMED
from codebutler_worker.present.calls import POLL_TOOL, QUESTIONS
from codebutler_worker.present.cards import asked_at_home
from codebutler_worker.runtime.budget import NOBODY, is_limited, is_shared, lines, spent_today
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import UNFINISHED
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso, place_of

LOOKED_AT = 100
NEEDY = 10
WORKING = 20
OTHERS = 8
NEEDING = ("waiting", "interrupted", "parked")
ENDED = ("done", "failed", "stopped")
MOST_ASKED = 5
TEXT_CHARS = 100
WHY_CHARS = 300
PATIENCE = 24
"""How often to look for a card that is not in the chat yet; about every five seconds."""
SETTLE_S = 0.5
"""Changes within this time are reported together."""
SHORT_TURN_S = 3.0
"""A turn that ends sooner is reported once, at its end, unless it needs somebody."""
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


class ActivityReports:
    """Reports to the parent. ``run`` is its life; it reports today's use at the start, and an idle worker
    reads nothing more."""

    def __init__(self, runtime: Runtime) -> None:
        budget = runtime.settings.config.budget
        self._runtime = runtime
        self._is_limited = is_limited(budget)
        self._is_shared = is_shared(budget)
        """Use here also counts against the shared limit of other repositories: report it at once."""
        self._own = BudgetSection(timezone=budget.timezone, repo=budget.repo)
        self._load = (0, 0, 0)
        self._overview = Overview(turns=())
        self._budget: Budget | None = None
        self._changed = asyncio.Event()
        self._is_pressing = asyncio.Event()
        """Set when a report is urgent: all turns are over, or somebody waits, or (with ``agent.mention``) a turn waits
        for a reply."""
        self._patience = PATIENCE

    def look(self, load: tuple[int, int, int]) -> None:
        """This many turns are running, queued and waiting: look again if the numbers changed, or if what
        waits for people or is used may have changed."""
        if load != self._load or load[2] or (load[0] and self._is_limited):
            is_called = self._runtime.settings.config.agent.mention == "mention"
            if load[2] or self._load[2] or is_called or self._is_shared or not any(load):
                self._is_pressing.set()
            self._load = load
            self._changed.set()
        elif self._patience and self._unposted:
            self._patience -= 1
            self.refresh()

    def refresh(self) -> None:
        """Something may have changed that the load does not show."""
        self._is_pressing.set()
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        if not self._is_shared:
            await self._runtime.clock.sleep(SETTLE_S)
        # Nobody else knows today's use of an earlier worker.
        self._tell_budget(await self._runtime.store.run(self._used))
        while True:
            await self._changed.wait()
            await wait_for(self._runtime.clock, self._is_pressing, SHORT_TURN_S)
            if not self._is_shared:
                await self._runtime.clock.sleep(SETTLE_S)
            self._is_pressing.clear()
            self._changed.clear()
            overview, budget = await self._runtime.store.run(lambda uow: (newest(uow), self._used(uow)))
            if overview != self._overview:
                self._overview = overview
                self._patience = PATIENCE
                self._runtime.send(overview)
            self._tell_budget(budget)

    @property
    def _unposted(self) -> bool:
        """Whether the last report had a card that was not in the chat yet."""
        asking = [turn for turn in self._overview.turns if turn.state in NEEDING]
        return any(not (turn.card or turn.asked) for turn in asking)

    def _tell_budget(self, budget: Budget) -> None:
        if budget != self._budget:
            self._budget = budget
            self._runtime.send(budget)

    def _used(self, uow: UnitOfWork) -> Budget:
        today = spent_today(uow, self._runtime.settings.config)
        found = lines(self._own, today.spent, NOBODY)
        return Budget(
            limits=tuple(LimitUse(unit=line.unit, used=line.used, limit=line.limit) for line in found),
            until=iso(today.until),
            used=today.used,
        )


def newest(uow: UnitOfWork) -> Overview:
    """Every unfinished turn, an interrupted one if it is the newest of its conversation, and the last that ended: those
    that need somebody, then the running and queued ones, then some others."""
    shown: list[TurnRow] = []
    seen: set[str] = set()
    for turn in uow.turns.find(newest=LOOKED_AT):
        if turn.state in (*UNFINISHED, *ENDED) or turn.conversation not in seen:
            shown.append(turn)
        seen.add(turn.conversation)
    polled = {row.turn_id for row in uow.approvals.find(state="pending") if row.tool == POLL_TOOL}
    # An ended run with an unanswered question in passing needs somebody too.
    polling = {turn.id for turn in shown if turn.id in polled and turn.state in ENDED}
    needy = [turn for turn in shown if turn.state in NEEDING or turn.id in polling]
    working = [turn for turn in shown if turn.state in ("running", "queued")]
    others = [turn for turn in shown if turn not in needy and turn not in working]
    chosen = [*needy[:NEEDY], *working[:WORKING], *others[:OTHERS]]
    notes = (_note(uow, turn, waits=turn.state == "waiting" or turn.id in polling) for turn in chosen)
    return Overview(turns=tuple(notes))


def _note(uow: UnitOfWork, turn: TurnRow, *, waits: bool) -> TurnNote:
    messages = uow.messages.find(turn_id=turn.id)
    return TurnNote(
        state="waiting" if waits else turn.state,
        thread=turn.thread,
        text=one_line(messages[0].content, TEXT_CHARS) if messages else "",
        agent=turn.agent,
        at=turn.finished_at or turn.started_at or turn.created_at,
        cost_usd=turn.cost_usd,
        id=turn.id,
        card=_card_ref(uow, turn) if turn.state in ("parked", "interrupted") else NOWHERE,
        asked=_asked(uow, turn) if waits else (),
        why=one_line(turn.result or "", WHY_CHARS) if turn.state == "parked" else "",
        changed=turn.tree_after not in (None, turn.tree_before),
    )


def _card_ref(uow: UnitOfWork, turn: TurnRow) -> MessageRef:
    """The card that asks whether to continue the turn."""
    if turn.state == "parked":
        card = uow.outbox.get(turn.progress_op_id)
        return (card.ref if card else None) or turn.thread
    card = uow.outbox.last_offer(turn.id, RETRY_ACTION)
    return (card.ref if card else None) or NOWHERE


def _asked(uow: UnitOfWork, turn: TurnRow) -> tuple[Asked, ...]:
    """The turn's open questions whose cards are in the chat."""
    found: list[Asked] = []
    for row in uow.approvals.find(state="pending", turn_id=turn.id)[:MOST_ASKED]:
        card = uow.outbox.get(row.message_op_id)
        if card is not None and card.ref:
            found.append(asked_at_home(row, card.ref))
    return tuple(found)


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
