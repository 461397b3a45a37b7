"""Keeps a running turn's progress message up to date, slowly enough for Slack and for a phone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from codebutler.process.waiting import wait_for
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, Place
from codebutler_worker.present.progress import Message

TICK_S = 15.0
EDIT_S = 3.0
"""At least this long between two edits: at most 20 a minute for each turn, of 50 that Slack grants to all."""


class ProgressMessage:
    """Edits one post of ours. At most one edit is under way: a slow Slack gets fewer edits, not a backlog."""

    def __init__(
        self, desk: Desk, place: Place, op_id: str, render: Callable[[], tuple[Message, str]]
    ) -> None:
        self._desk = desk
        self._place = place
        self._op_id = op_id
        self._render = render
        self._changed = asyncio.Event()

    def refresh(self) -> None:
        """There is something new to show."""
        self._changed.set()

    async def run(self) -> None:
        """Edit whenever there is something new, and now and then for the elapsed time; until cancelled."""
        latest: str | None = self._op_id
        while latest is not None:
            flush_s = self._desk.settings.config.output.flush_interval_ms / 1000
            await self._desk.clock.sleep(max(EDIT_S, flush_s))
            await wait_for(self._desk.clock, self._changed, TICK_S)
            await self._desk.outbox.settled(latest)
            self._changed.clear()
            latest = await self._desk.commit(self._edit)

    def _edit(self, draft: Draft) -> str | None:
        message, last_seen = self._render()
        if last_seen and self._place.turn_id:
            # Kept for recovery: what the turn was last seen doing. Its end overwrites it with its result.
            draft.uow.turns.update(self._place.turn_id, result=last_seen)
        return draft.edit(self._place, self._op_id, message)
