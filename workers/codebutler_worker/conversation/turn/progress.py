"""Keeps a running turn's progress message up to date, slowly enough for Slack and for a phone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from codebutler.message import Message
from codebutler.process.waiting import wait_for
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, Place

GAPS_S = (3.0, 5.0, 10.0, 15.0)
"""Between two edits, at least: of all turns together Slack takes 50 a minute. The last one stays."""
TICK_S = 30.0
"""Without anything new the elapsed time is shown so often."""


class ProgressMessage:
    """Posts one message, ``posted`` if it is there already, and edits it. At most one change is under way: a slow Slack
    gets fewer edits, not a backlog. ``on_post`` is told what was posted."""

    def __init__(
        self,
        desk: Desk,
        place: Place,
        posted: str | None,
        render: Callable[[], tuple[Message, str]],
        on_post: Callable[[str], None],
    ) -> None:
        self._desk = desk
        self._place = place
        self._op_id = posted
        self._render = render
        self._on_post = on_post
        self._changed = asyncio.Event()

    def refresh(self) -> None:
        """There is something new to show."""
        self._changed.set()

    async def run(self) -> None:
        """Show the turn if it lasts, then what is new, and now and then the elapsed time; until cancelled."""
        output = self._desk.settings.config.output
        latest = self._op_id
        if output.progress_after_seconds:
            await self._desk.clock.sleep(output.progress_after_seconds)
            latest = await self._show()
        gaps = iter(GAPS_S)
        while latest is not None:
            gap_s = next(gaps, GAPS_S[-1])
            await self._desk.clock.sleep(max(gap_s, output.flush_interval_ms / 1000))
            await wait_for(self._desk.clock, self._changed, TICK_S)
            await self._desk.outbox.settled(latest)
            latest = await self._show()

    async def _show(self) -> str | None:
        self._changed.clear()
        first = self._op_id is None
        latest = await self._desk.commit(self._put)
        if first and latest is not None:
            self._op_id = latest
            self._on_post(latest)
        return latest

    def _put(self, draft: Draft) -> str | None:
        message, last_seen = self._render()
        turn_id = self._place.turn_id or ""
        if last_seen:
            # Kept for recovery: what the turn was last seen doing. Its end overwrites it with its result.
            draft.uow.turns.update(turn_id, result=last_seen)
        if self._op_id is not None:
            return draft.edit(self._place, self._op_id, message)
        posted = draft.post(self._place, message, value="progress")
        draft.uow.turns.update(turn_id, progress_op_id=posted)
        return posted
