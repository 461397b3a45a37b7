"""Unasked reports to the parent, for App Home: the newest turns, and today's use."""

from __future__ import annotations

import asyncio

from codebutler.config.section import BudgetSection
from codebutler.domain.message import RETRY_ACTION
from codebutler.domain.model import TurnNote
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.platform.tasks import wait_for
from codebutler.protocol.messages import Budget, LimitUse, Overview
from codebutler.text.wording import one_line
from codebutler_worker.conversation.approvals import asked_in_chat
from codebutler_worker.present.calls import POLL_TOOL
from codebutler_worker.present.cards import asked_at_home
from codebutler_worker.runtime.budget import NOBODY, is_limited, is_shared, lines, spent_today
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import UNFINISHED
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork, iso

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
        asked=tuple(asked_at_home(*each) for each in asked_in_chat(uow, turn.id, MOST_ASKED))
        if waits
        else (),
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
