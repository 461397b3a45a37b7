"""Tells the parent what the newest turns here are, when that may have changed. App Home shows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from codebutler.model import TurnNote
from codebutler.protocol.messages import Overview, ToParent
from codebutler_worker.conversation.desk import Desk
from codebutler_worker.present.lines import one_line
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork

LOOKED_AT = 100
NEEDY = 10
OTHERS = 5
TEXT_CHARS = 100
SETTLE_S = 0.5
"""What changes together is told once."""


class Overviews:
    """``run`` is its life; an idle worker, whose load never changes, reads nothing."""

    def __init__(self, desk: Desk, send: Callable[[ToParent], None]) -> None:
        self._desk = desk
        self._send = send
        self._load = (0, 0, 0)
        self._told: tuple[TurnNote, ...] = ()
        self._changed = asyncio.Event()

    def look(self, load: tuple[int, int, int]) -> None:
        """There are so many turns running, queued and waiting: look again if these are others than before."""
        if load != self._load:
            self._load = load
            self._changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._changed.wait()
            await self._desk.clock.sleep(SETTLE_S)
            self._changed.clear()
            turns = await self._desk.store.run(newest)
            if turns != self._told:
                self._told = turns
                self._send(Overview(turns=turns))


def newest(uow: UnitOfWork) -> tuple[TurnNote, ...]:
    """The newest turn of each conversation: those that need somebody, then some of the others."""
    latest: dict[str, TurnRow] = {}
    for turn in uow.turns.newest(LOOKED_AT):
        latest.setdefault(turn.conversation, turn)
    needy = [turn for turn in latest.values() if turn.state in ("waiting", "interrupted", "parked")]
    others = [turn for turn in latest.values() if turn not in needy]
    return tuple(_note(uow, turn) for turn in [*needy[:NEEDY], *others[:OTHERS]])


def _note(uow: UnitOfWork, turn: TurnRow) -> TurnNote:
    messages = uow.messages.of_turn(turn.id)
    return TurnNote(
        state=turn.state,
        thread_ts=turn.thread_ts,
        text=one_line(messages[0].content, TEXT_CHARS) if messages else "",
        agent=turn.agent,
        at=turn.finished_at or turn.started_at or turn.created_at,
        cost_usd=turn.cost_usd,
    )
