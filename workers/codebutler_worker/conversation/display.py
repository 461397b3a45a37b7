"""What people see of a running turn: its progress message or its terminal, the status under the thread, and
(``output.verbosity`` "verbose") every tool with its result.

At most one change of a message is under way, so a slow chat gets fewer edits and no backlog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from codebutler.domain.errors import StoreError
from codebutler.platform.tasks import wait_for
from codebutler.protocol.messages import Doing
from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import AgentEvent, Output, ToolResult, ToolUse
from codebutler_worker.conversation.marks import MARK_AFTER_S, WORKING, show
from codebutler_worker.conversation.prepare import BegunTurn
from codebutler_worker.conversation.terminal import TerminalDisplay
from codebutler_worker.present import progress
from codebutler_worker.present.progress import TurnProgress, joined, live, reduce, tool_label, tool_result
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import race_in
from codebutler_worker.store.unit_of_work import ThreadPlace, UnitOfWork

GAPS_S = (3.0, 5.0, 10.0, 15.0)
"""At least this long between two edits: a chat allows 50 a minute for all turns together. The last edit
stays."""
TICK_S = 30.0
"""How often the elapsed time is updated if nothing else is new."""
STATUS_S = 3.0
STATUS_AGAIN_S = 60.0
"""A chat drops the status under a thread after two minutes."""
STATUS_CHARS = 80
MAX_CALLS = 1000


class ToolLog:
    """The tool calls to report in the thread. Bounded: an agent may make a thousand a minute."""

    def __init__(self, limit: int, redact: Callable[[str], str]) -> None:
        self._limit = limit
        self._redact = redact
        self._calls: dict[str, str] = {}
        self._entries: list[str] = []
        self._left_out = 0

    @property
    def waits(self) -> bool:
        """Whether there is anything to report."""
        return bool(self._entries)

    def record(self, event: AgentEvent) -> None:
        """Add a call, or its result."""
        if isinstance(event, ToolUse) and len(self._calls) < MAX_CALLS:
            self._calls[event.id] = tool_label(event.name, event.summary)
        elif isinstance(event, ToolResult):
            label = self._calls.pop(event.id, "a tool")
            entry = tool_result(label, event.text, ok=event.ok, redact=self._redact)
            # One message for everything between two of them: more would exceed the chat's limits.
            if sum(len(each) + 1 for each in self._entries) + len(entry) > self._limit:
                self._left_out += 1
            else:
                self._entries.append(entry)

    def take(self) -> str:
        """All of them as one message."""
        entries, left_out = self._entries, self._left_out
        self._entries, self._left_out = [], 0
        return joined(entries, left_out)


class Display:
    """The display of one turn, which its ``tasks`` update from now on: they must have ended before the outcome is
    posted. ``terminal`` is a program's, None for an agent; ``tools`` are reported if the output is verbose."""

    def __init__(self, runtime: Runtime, place: ThreadPlace, begun: BegunTurn) -> None:
        output = runtime.settings.config.output
        self.view = TurnProgress()
        self.terminal: TerminalDisplay | None = None
        self.started_s = runtime.clock.monotonic()
        self._runtime = runtime
        self._place = place
        self._turn = begun.turn
        self._races = bool(race_in(begun.turn.conversation))
        if begun.program is not None:
            self.terminal = TerminalDisplay(
                runtime, place, begun.turn.id, begun.program, begun.progress_op_id
            )
        self._posted = begun.progress_op_id
        """The progress message."""
        self._after = begun.progress_op_id
        """The operation that the status must follow: a message of ours clears it."""
        self._status = "is working"
        self.tools: ToolLog | None = None
        if output.verbosity == "verbose":
            self.tools = ToolLog(output.max_chars_per_message, runtime.redactor.redact)
        self._changed = asyncio.Event()
        self._status_changed = asyncio.Event()
        shown = {"status": self._show_status(), "mark": self._mark()}
        if self.terminal is not None:
            shown["terminal"] = self.terminal.run()
        elif output.verbosity != "quiet" or begun.progress_op_id is not None:
            shown["progress"] = self._show_progress()
        self.tasks = [
            asyncio.create_task(work, name=f"{name} of {self._turn.id}") for name, work in shown.items()
        ]

    def record(self, event: AgentEvent) -> None:
        """Record an event of the agent."""
        if isinstance(event, Output) and self.terminal is not None:
            self.terminal.take(event)
        # Two agents' words in one stream would be unreadable.
        if self._place.thread and not self._races and (line := live(event, self._place.thread)) is not None:
            self._runtime.send(line)
        if self.tools is not None:
            self.tools.record(event)
            if self.tools.waits:
                self._status_changed.set()
        self._see(reduce(self.view, event))

    def waits(self, what: str, card_op_id: str | None) -> None:
        """It waits for a person's ``what``, as the card says; "" if it no longer waits."""
        self._after = card_op_id or self._after
        self._see(replace(self.view, waits=what))

    def _see(self, view: TurnProgress) -> None:
        if view == self.view:
            return
        self.view = view
        self._changed.set()
        status = f"is working: {one_line(view.activity, STATUS_CHARS)}" if view.activity else "is working"
        status = "is writing" if view.writing else status
        status = f"is waiting for your {view.waits}" if view.waits else status
        if status != self._status:
            self._status = status
            self._status_changed.set()

    async def report_tools(self) -> None:
        """Store the tool reports that are left when the turn is over."""
        try:
            await self._runtime.commit(self._post_tools)
        except StoreError as error:
            # The answer says more than these, and is retried until the store takes it.
            self._runtime.log("WRN", f"cannot report tools: {error}")

    async def _mark(self) -> None:
        """A turn that ends within a moment needs only its end mark."""
        await self._runtime.clock.sleep(MARK_AFTER_S)
        try:
            await self._runtime.commit(partial(show, turn=self._turn, mark=WORKING))
        except StoreError as error:
            self._runtime.log("WRN", f"left out a mark: {error}")

    async def _show_status(self) -> None:
        """Under the thread: the current step; in the thread, if configured, its tools."""
        while True:
            if self._after:
                await self._runtime.outbox.settled(self._after)
            self._status_changed.clear()
            if self.tools is not None and self.tools.waits:
                await self._runtime.outbox.settled(await self._runtime.commit(self._post_tools))
            if self._place.thread:
                self._runtime.send(Doing(thread=self._place.thread, text=self._status))
            await self._runtime.clock.sleep(STATUS_S)
            await wait_for(self._runtime.clock, self._status_changed, STATUS_AGAIN_S)

    async def _show_progress(self) -> None:
        """Post the turn if it lasts, then what is new, and now and then the elapsed time."""
        output = self._runtime.settings.config.output
        latest = self._posted
        if output.progress_after_seconds:
            await self._runtime.clock.sleep(output.progress_after_seconds)
            latest = await self._put_progress()
        gaps = iter(GAPS_S)
        while latest is not None:
            gap_s = next(gaps, GAPS_S[-1])
            await self._runtime.clock.sleep(max(gap_s, output.flush_interval_ms / 1000))
            await wait_for(self._runtime.clock, self._changed, TICK_S)
            await self._runtime.outbox.settled(latest)
            latest = await self._put_progress()

    async def _put_progress(self) -> str | None:
        """Returns the operation that shows it; None if there is no message to edit."""
        self._changed.clear()
        first = self._posted is None
        latest = await self._runtime.commit(self._draft_progress)
        if first and latest is not None:
            self._posted = self._after = latest
            self._status_changed.set()
        return latest

    def _draft_progress(self, uow: UnitOfWork) -> str | None:
        elapsed_s = self._runtime.clock.monotonic() - self.started_s
        agent, name = self._turn.agent, self._turn.agent if self._races else ""
        message = progress.running(self.view, elapsed_s, self._turn.id, agent, name)
        if self.view.last_tool:
            # For recovery: the turn's last step. The end overwrites it with the result.
            uow.turns.update(self._turn.id, result=self.view.last_tool)
        if self._posted is not None:
            return uow.edit(self._place, self._posted, message)
        posted = uow.post(self._place, message, value="progress")
        uow.turns.update(self._turn.id, progress_op_id=posted)
        return posted

    def _post_tools(self, uow: UnitOfWork) -> str:
        return uow.post(self._place, self.tools.take() if self.tools else "", value="progress")
