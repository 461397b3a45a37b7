"""What people see of a running turn: its progress message or its terminal, the status under the thread, and
(``output.verbosity`` "verbose") every tool with its result.

At most one change of a message is under way, so a slow chat gets fewer edits and no backlog.

Publishes what an agent sends while it works: an envelope in its text (`text/requests.py`) is posted at
once, and a file that it names becomes an upload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from codebutler.domain.errors import StoreError
from codebutler.domain.model import Post, Upload
from codebutler.platform.tasks import wait_for
from codebutler.protocol.messages import Doing
from codebutler.text.requests import Envelope, EnvelopeParser, Part, parts_of, prose_of
from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import AgentEvent, Finished, Output, ToolResult, ToolUse
from codebutler_worker.changes.card import push_offer
from codebutler_worker.conversation.approvals import open_poll
from codebutler_worker.conversation.prepare import BegunTurn
from codebutler_worker.conversation.queue import MARK_AFTER_S, WORKING, show
from codebutler_worker.conversation.terminal import TerminalDisplay
from codebutler_worker.media.files import load_file
from codebutler_worker.present import progress
from codebutler_worker.present.progress import (
    TurnProgress,
    joined,
    live,
    only_files,
    posts,
    reduce,
    tool_label,
    tool_result,
    unsent,
)
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


FILE = "file"
QUESTION = "question"
PUSH = "push"
MAX_FILES = 20
MAX_ENVELOPES = 100
TOO_MANY = f"⚠️ More than {MAX_ENVELOPES} messages in one run: the rest is in the session's log only."
SAID_ABOVE = "Done, see above."


class Publisher:
    """Sends what a turn's agent sends in its text, besides its answer. An answer repeats the text before it; nothing is
    sent twice."""

    def __init__(self, runtime: Runtime, place: ThreadPlace, workdir: Path) -> None:
        self._runtime = runtime
        self._place = place
        self._workdir = workdir
        self._parser = EnvelopeParser(runtime.settings.config.envelope.unclosed_timeout_ms / 1000)
        self._seen: set[Envelope] = set()
        self._sent: list[str] = []
        self._files = self._envelopes = 0
        self._closing: asyncio.Task[None] | None = None

    async def take(self, text: str) -> str:
        """Send the envelopes in the text; returns the rest."""
        parts = self._parser.feed(text, self._runtime.clock.monotonic())
        await self._publish(parts, again=True)
        if self._parser.open and self._closing is None:
            self._closing = asyncio.create_task(self._close_in_time(), name="open envelope")
        return prose_of(parts)

    async def finish(self, finished: Finished) -> Finished:
        """The same for a turn's answer; an open envelope is sent as incomplete."""
        await self.close()
        await self._publish(self._parser.close(), again=True)
        if not finished.ok:
            return finished
        parts = parts_of(finished.text)
        await self._publish(parts, again=False)
        text = prose_of(parts)
        if not text and self._sent:
            text = only_files(self._sent)
        elif not text and self._envelopes:
            text = SAID_ABOVE
        return replace(finished, text=text)

    async def close(self) -> None:
        """Stop: the turn is over."""
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)

    async def _close_in_time(self) -> None:
        while self._parser.open:
            await self._runtime.clock.sleep(1.0)
            await self._publish(self._parser.overdue(self._runtime.clock.monotonic()), again=True)
        self._closing = None

    async def _publish(self, parts: Iterable[Part], *, again: bool) -> None:
        for part in parts:
            if not isinstance(part, Envelope) or (part in self._seen and not again):
                continue
            self._seen.add(part)
            if part.type == FILE:
                await self._send(part)
            else:
                await self._post(part)

    async def _post(self, envelope: Envelope) -> None:
        self._envelopes += 1
        if self._envelopes == MAX_ENVELOPES:
            await self._commit(TOO_MANY)
        if self._envelopes >= MAX_ENVELOPES:
            return
        if envelope.type == PUSH:
            await self.ask_to_push(envelope.body)
            return
        if envelope.type == QUESTION and envelope.complete and await self._ask(envelope.body):
            return
        limit = self._runtime.settings.config.output.max_chars_per_message
        for post in posts(envelope, self._place.thread, limit, self._runtime.redactor.redact):
            await self._commit(post)

    async def _ask(self, body: str) -> bool:
        """Whether it was posted with buttons."""
        config, turn_id = self._runtime.settings.config, self._place.turn_id or ""
        text = self._runtime.redactor.redact(body)
        try:
            return await self._runtime.commit(lambda uow: open_poll(uow, turn_id, text, config))
        except StoreError as error:
            self._runtime.log("ERR", f"could not store a question: {error}")
            return False

    async def ask_to_push(self, why: str) -> None:
        """Post a card that asks, once in a run: nothing is pushed unless a person with permission presses its
        button."""
        turn_id = self._place.turn_id or ""
        op_id, card = f"{turn_id}-push", push_offer(turn_id, self._runtime.redactor.redact(why))
        try:
            await self._runtime.commit(
                lambda uow: uow.outbox.get(op_id) or uow.post(self._place, card, op_id=op_id)
            )
        except StoreError as error:
            self._runtime.log("ERR", f"could not store a push request: {error}")

    async def _send(self, envelope: Envelope) -> None:
        path = envelope.body
        self._files += 1
        if self._files > MAX_FILES:
            return
        try:
            if not envelope.complete:
                raise OSError(0, "its envelope was not closed")
            if self._files == MAX_FILES:
                raise OSError(0, f"a run may send {MAX_FILES - 1} files")
            name, content = await asyncio.to_thread(load_file, self._workdir, path, self._runtime.private)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no such file"
            await self._commit(unsent(path, why))
            return
        self._sent.append(name)
        await self._commit(Upload(filename=name, title=name, content=content, thread=self._place.thread))

    async def _commit(self, sent: Post | Upload | str) -> None:
        try:
            if isinstance(sent, str):
                await self._runtime.commit(lambda uow: uow.post(self._place, sent))
            else:
                await self._runtime.commit(lambda uow: uow.add(self._place, sent))
        except StoreError as error:
            # The answer matters more: it is retried until it is stored.
            self._runtime.log("ERR", f"could not store what the agent sent: {error}")
