"""What people see of a running turn: its progress message or its terminal, and the line under the thread."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from codebutler.errors import StoreError
from codebutler.message import Message
from codebutler_worker.agents.backend import AgentEvent, Output
from codebutler_worker.conversation.line.marks import show_working
from codebutler_worker.conversation.line.places import MARK_AFTER_S
from codebutler_worker.conversation.turn.beginning import Begun
from codebutler_worker.conversation.turn.progress import ProgressMessage
from codebutler_worker.conversation.turn.showing import Showing
from codebutler_worker.conversation.turn.telling import Telling
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Place
from codebutler_worker.present import progress
from codebutler_worker.present.aloud import aloud
from codebutler_worker.present.reducer import View, reduce


class Display:
    """Of one turn. ``start`` once; ``settle`` before its outcome is told, ``clear`` after that; ``close`` at the
    end, whatever happened. ``showing`` is a program's terminal, None for an agent."""

    def __init__(self, desk: Desk, place: Place, begun: Begun) -> None:
        self._desk = desk
        self._place = place
        self._turn = begun.turn
        self._started_s = desk.clock.monotonic()
        self._progress: ProgressMessage | None = None
        self._telling = Telling(desk, place, begun.progress_op_id)
        self._tasks: list[asyncio.Task[None]] = []
        self.view = View()
        self.showing: Showing | None = None
        if begun.program is not None:
            self.showing = Showing(desk, place, begun.turn.id, begun.program, begun.progress_op_id)
        elif begun.progress_op_id is not None or desk.settings.config.output.verbosity != "quiet":
            told = self._telling.again
            self._progress = ProgressMessage(desk, place, begun.progress_op_id, self._render, told)

    @property
    def elapsed_s(self) -> float:
        """Since the turn began."""
        return self._desk.clock.monotonic() - self._started_s

    def start(self) -> None:
        """Begin to show."""
        self._telling.start()
        self._tasks.append(asyncio.create_task(self._mark(), name=f"mark of {self._turn.id}"))
        if self.showing is not None:
            self._tasks.append(asyncio.create_task(self.showing.run(), name=f"terminal of {self._turn.id}"))
        elif self._progress is not None:
            self._tasks.append(asyncio.create_task(self._progress.run(), name=f"progress of {self._turn.id}"))

    def heard(self, event: AgentEvent) -> None:
        """Take note of what the agent does."""
        if isinstance(event, Output) and self.showing is not None:
            self.showing.take(event)
        if self._place.thread_ts and (live := aloud(event, self._place.thread_ts)) is not None:
            self._desk.report.send(live)
        self._telling.heard(event)
        self._see(reduce(self.view, event))

    def waits(self, what: str, card_op_id: str | None) -> None:
        """It waits for a person's ``what``, as the card says; "" if for nothing any more."""
        self._see(replace(self.view, waits=what), card_op_id)

    async def settle(self) -> None:
        """Show nothing more; what is told already is out before this returns."""
        for task in self._tasks:
            task.cancel()
        await self._telling.close()

    def clear(self) -> None:
        """Nothing is done any more."""
        self._telling.clear()

    async def close(self) -> None:
        """End what still runs."""
        self._telling.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _mark(self) -> None:
        """A turn that is over in a moment needs no mark but its last one."""
        await self._desk.clock.sleep(MARK_AFTER_S)
        try:
            await self._desk.commit(lambda draft: show_working(draft, self._turn))
        except StoreError as error:
            self._desk.report.log("WRN", f"a mark is left out: {error}")

    def _see(self, view: View, after: str | None = None) -> None:
        self._telling.look(view, after)
        if view != self.view:
            self.view = view
            if self._progress is not None:
                self._progress.refresh()

    def _render(self) -> tuple[Message, str]:
        message = progress.running(self.view, self.elapsed_s, self._turn.id, self._turn.agent)
        return message, self.view.last_tool
