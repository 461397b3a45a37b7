"""What a running turn tells beside its progress message: a line under the thread, and (``output.verbosity``
"verbose") every tool with its result. Slowly, and bounded: an agent may use a thousand tools a minute."""

from __future__ import annotations

import asyncio

from codebutler.errors import StoreError
from codebutler.process.waiting import wait_for
from codebutler.protocol.messages import Doing
from codebutler_worker.agents.backend import AgentEvent, ToolResult, ToolUse
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, Place
from codebutler_worker.present.lines import one_line
from codebutler_worker.present.reducer import View
from codebutler_worker.present.tools import joined, tool_result

SHOW_S = 3.0
AGAIN_S = 60.0
"""Slack drops what is shown under a thread after two minutes."""
DOING_CHARS = 80
MAX_CALLS = 1000


class Telling:
    """Of one turn. ``start`` once; ``close`` before the turn's outcome is told.

    A message of ours ends what is shown under the thread, which comes ``after`` it: after the progress message, and
    after each card.
    """

    def __init__(self, desk: Desk, place: Place, after: str | None) -> None:
        output = desk.settings.config.output
        self._desk = desk
        self._place = place
        self._after = after
        self._verbose = output.verbosity == "verbose"
        self._limit = output.max_chars_per_message
        self._calls: dict[str, str] = {}
        self._entries: list[str] = []
        self._left_out = 0
        self._doing = "is working"
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to tell."""
        self._task = asyncio.create_task(self._run(), name=f"telling of {self._place.turn_id}")

    def look(self, view: View, after: str | None = None) -> None:
        """This is what it does now, to be shown once the operation ``after`` is done."""
        self._after = after or self._after
        doing = f"is working: {one_line(view.activity, DOING_CHARS)}" if view.activity else "is working"
        doing = "is writing" if view.writing else doing
        doing = f"is waiting for your {view.waits}" if view.waits else doing
        if doing != self._doing:
            self._doing = doing
            self._changed.set()

    def again(self, after: str) -> None:
        """Show the same once more, once the operation ``after`` is done."""
        self._after = after
        self._changed.set()

    def heard(self, event: AgentEvent) -> None:
        """Take note of what the agent does."""
        if not self._verbose:
            return
        if isinstance(event, ToolUse) and len(self._calls) < MAX_CALLS:
            self._calls[event.id] = f"{event.name}: {event.summary}" if event.summary else event.name
        elif isinstance(event, ToolResult):
            self._add(tool_result(self._calls.pop(event.id, "a tool"), event.text, ok=event.ok))

    def stop(self) -> None:
        """Tell no more."""
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Tell the rest."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._entries:
            try:
                await self._desk.commit(self._post)
            except StoreError as error:
                # The answer will say more than these, and is tried until the store takes it.
                self._desk.report.log("WRN", f"tools are not told of: {error}")

    def clear(self) -> None:
        """Show nothing under the thread any more. A reply clears it too, so this need hold up no answer."""
        self._show("")

    def _add(self, entry: str) -> None:
        """One message holds what comes between two of them: more would fall behind what Slack takes."""
        if sum(len(each) + 1 for each in self._entries) + len(entry) > self._limit:
            self._left_out += 1
        else:
            self._entries.append(entry)
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._desk.outbox.settled(self._after or "")
            self._changed.clear()
            if self._entries:
                await self._desk.outbox.settled(await self._desk.commit(self._post))
            self._show(self._doing)
            await self._desk.clock.sleep(SHOW_S)
            await wait_for(self._desk.clock, self._changed, AGAIN_S)

    def _post(self, draft: Draft) -> str:
        entries, left_out = self._entries, self._left_out
        self._entries, self._left_out = [], 0
        return draft.post(self._place, joined(entries, left_out), value="progress")

    def _show(self, text: str) -> None:
        if self._place.thread_ts:
            self._desk.report.send(Doing(thread_ts=self._place.thread_ts, text=text))
