"""Tells the parent what the newest turns here are and what is used today, when that may have changed. App Home
shows both."""

from __future__ import annotations

import asyncio

from codebutler.config.schema import BudgetSection
from codebutler.domain.actions import RETRY_ACTION
from codebutler.domain.model import Asked, TurnNote
from codebutler.protocol.messages import Budget, LimitUse, Overview
from codebutler_worker.budget import NOBODY, is_limited, lines, spent_today
from codebutler_worker.present.calls import POLL_TOOL
from codebutler_worker.present.cards import asked_at_home
from codebutler_worker.present.lines import one_line
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import UNFINISHED
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso

LOOKED_AT = 100
NEEDY = 10
WORKING = 20
OTHERS = 5
NEEDING = ("waiting", "interrupted", "parked")
ENDED = ("done", "failed", "stopped")
MOST_ASKED = 5
TEXT_CHARS = 100
WHY_CHARS = 300
PATIENCE = 24
"""How often a card is looked for that is not in the chat yet; about every five seconds."""
SETTLE_S = 0.5
"""What changes together is told once."""


class ActivityReports:
    """``run`` is its life: it reports the use of the day at the start, and an idle worker reads nothing more."""

    def __init__(self, runtime: Runtime) -> None:
        budget = runtime.settings.config.budget
        self._runtime = runtime
        self._is_limited = is_limited(budget)
        self._own = BudgetSection(timezone=budget.timezone, repo=budget.repo)
        self._load = (0, 0, 0)
        self._overview = Overview(turns=())
        self._budget: Budget | None = None
        self._changed = asyncio.Event()
        self._patience = PATIENCE

    def look(self, load: tuple[int, int, int]) -> None:
        """There are so many turns running, queued and waiting: look again if these are others than before, or if what
        waits for people or is used may have changed."""
        if load != self._load or load[2] or (load[0] and self._is_limited):
            self._load = load
            self._changed.set()
        elif self._patience and self._unposted:
            self._patience -= 1
            self._changed.set()

    def refresh(self) -> None:
        """Something may have changed that the load does not tell."""
        self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        await self._runtime.clock.sleep(SETTLE_S)
        # Nobody else knows what an earlier life used today.
        self._tell_budget(await self._runtime.store.run(self._used))
        while True:
            await self._changed.wait()
            await self._runtime.clock.sleep(SETTLE_S)
            self._changed.clear()
            overview, budget = await self._runtime.store.run(lambda uow: (newest(uow), self._used(uow)))
            if overview != self._overview:
                self._overview = overview
                self._patience = PATIENCE
                self._runtime.send(overview)
            self._tell_budget(budget)

    @property
    def _unposted(self) -> bool:
        """Whether a card has been told of that was not in the chat yet."""
        asking = [turn for turn in self._overview.turns if turn.state in NEEDING]
        return any(not (turn.card_ts or turn.asked) for turn in asking)

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
    """All that is not over, and the newest turn of each conversation: those that need somebody, then those that run or
    are queued, then some of the others."""
    shown: list[TurnRow] = []
    seen: set[str] = set()
    for turn in uow.turns.newest(LOOKED_AT):
        if turn.state in UNFINISHED or turn.conversation not in seen:
            shown.append(turn)
        seen.add(turn.conversation)
    polled = {row.turn_id for row in uow.approvals.pending() if row.tool == POLL_TOOL}
    # A run that has ended with a question in passing which nobody has answered, here or in words, needs somebody too.
    polling = {turn.id for turn in shown if turn.id in polled and turn.state in ENDED}
    needy = [turn for turn in shown if turn.state in NEEDING or turn.id in polling]
    working = [turn for turn in shown if turn.state in ("running", "queued")]
    others = [turn for turn in shown if turn not in needy and turn not in working]
    chosen = [*needy[:NEEDY], *working[:WORKING], *others[:OTHERS]]
    notes = (_note(uow, turn, waits=turn.state == "waiting" or turn.id in polling) for turn in chosen)
    return Overview(turns=tuple(notes))


def _note(uow: UnitOfWork, turn: TurnRow, *, waits: bool) -> TurnNote:
    messages = uow.messages.of_turn(turn.id)
    return TurnNote(
        state="waiting" if waits else turn.state,
        thread_ts=turn.thread_ts,
        text=one_line(messages[0].content, TEXT_CHARS) if messages else "",
        agent=turn.agent,
        at=turn.finished_at or turn.started_at or turn.created_at,
        cost_usd=turn.cost_usd,
        id=turn.id,
        card_ts=_card_ts(uow, turn) if turn.state in ("parked", "interrupted") else "",
        asked=_asked(uow, turn) if waits else (),
        why=one_line(turn.result or "", WHY_CHARS) if turn.state == "parked" else "",
    )


def _card_ts(uow: UnitOfWork, turn: TurnRow) -> str:
    """Where it is asked whether the turn is to go on."""
    if turn.state == "parked":
        card = uow.outbox.get(turn.progress_op_id) if turn.progress_op_id else None
        return (card.ts if card else None) or turn.thread_ts
    card = uow.outbox.last_offer(turn.id, RETRY_ACTION)
    return (card.ts if card else None) or ""


def _asked(uow: UnitOfWork, turn: TurnRow) -> tuple[Asked, ...]:
    """What the turn waits for or has asked in passing, as far as its cards are there to be edited."""
    found: list[Asked] = []
    for row in uow.approvals.pending(turn.id)[:MOST_ASKED]:
        card = uow.outbox.get(row.message_op_id or "")
        if card is not None and card.ts:
            found.append(asked_at_home(row, card.ts))
    return tuple(found)
