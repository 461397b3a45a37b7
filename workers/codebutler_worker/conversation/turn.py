"""Runs a turn: starts, hears and stops its agent, and commits the outcome.

Start and end are one transaction each, and the start is committed before anything is started: after a crash
in between, the turn is found interrupted, never lost without a trace.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import aclosing
from errno import EMFILE, ENFILE
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from codebutler.config.memory import MEMORY_NAME
from codebutler.config.programs import UNDO
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import NO_PERSON, NOWHERE, PersonRef
from codebutler.platform.kill_points import reached
from codebutler.platform.tasks import settled_within
from codebutler.protocol.capabilities import RESULT_NAME
from codebutler.protocol.messages import Doing, TurnStarted
from codebutler.text.wording import count, tidied
from codebutler_worker.agents.answer import clean
from codebutler_worker.agents.backend import (
    GONE,
    AgentBackend,
    AgentEvent,
    Approval,
    Finished,
    Question,
    Started,
    Text,
    ToolUse,
    TurnRequest,
    Usage,
    Withdrawn,
)
from codebutler_worker.agents.running import instructions
from codebutler_worker.changes.evidence import show_changes, trail
from codebutler_worker.conversation.asking import Asking
from codebutler_worker.conversation.attachments import AttachmentFetcher, is_usable
from codebutler_worker.conversation.display import Display
from codebutler_worker.conversation.end import Ending, Hold, after_refusal, conclude, record_end
from codebutler_worker.conversation.history import Missed, record_of
from codebutler_worker.conversation.lacks import warn_of_lacks
from codebutler_worker.conversation.prepare import BegunTurn, Snapshots, prompt_of, system_prompt
from codebutler_worker.conversation.publisher import Publisher
from codebutler_worker.conversation.workdir import tidy_workdir
from codebutler_worker.memory.keeping import TurnNotes
from codebutler_worker.memory.learning import memory_block, read_memory
from codebutler_worker.present.progress import NOTHING_LEFT, Outcome
from codebutler_worker.runtime.budget import BudgetWatch, used_up_text
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import ApprovalAnswer, tag_of
from codebutler_worker.store.opening import STATE_DIR
from codebutler_worker.store.rows import SessionRow, key_of, race_in
from codebutler_worker.store.unit_of_work import UnitOfWork, place_of
from codebutler_worker.tools.talking import is_push_request

STOP_GRACE_S = 6.0
STREAM_END_S = 5.0
# Ending the agent's processes takes about as long as posting its answer, which goes first.
ANSWER_FIRST_S = 3.0
BROKEN = "CodeButler had an internal error: see its log, then ask again."
NO_FILES = "This repository's worker has no file descriptors left: see `codebutler doctor`, then ask again."
SESSION_LOST = "⚠️ The earlier session could not be resumed, so this is a new one: it knows only this message."


class RunningTurn:
    """A running turn. ``run`` returns when its outcome is committed; ``stop`` may be called at any time.

    ``row`` is the turn as stored when it started; the store has what became of it. ``waits``: whether it
    waits for a person.
    """

    def __init__(self, runtime: Runtime, begun: BegunTurn, load_changed: Callable[[], None]) -> None:
        self.row = begun.turn
        self.waits = False
        self._runtime = runtime
        self._begun = begun
        self._load_changed = load_changed
        self._place = place_of(begun.turn)
        self._session_id = begun.turn.session_id
        self._prompt = ""
        self._stopping = False
        self._stopped_by = NO_PERSON
        self._backend: AgentBackend | None = None
        self._drive: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Finished] = loop.create_future()
        self._is_concluded: asyncio.Future[None] = loop.create_future()
        self._publisher: Publisher | None = None  # before its agent sends anything but text
        self._asking: Asking | None = None  # before its agent asks people anything
        self._display: Display  # from the start of ``run``
        self._snapshots = Snapshots(runtime, begun.turn, Path(runtime.settings.path))
        uses_model = begun.program is None and begun.turn.agent != UNDO
        self._watch = BudgetWatch(runtime, begun.turn, counts=uses_model)
        traces = runtime.traces
        self._trace = traces.begin(begun.messages, begun.turn.agent) if traces.open else None

    async def run(self) -> None:
        """Run the agent and commit the outcome as soon as it reports it (its program may end later)."""
        runtime, row = self._runtime, self.row
        runtime.send(TurnStarted(thread=row.thread, messages=self._begun.messages))
        fresh = "resumed session" if self._session_id else "new session"
        runtime.log(
            tag_of(runtime.settings.config, row.agent),
            f"processing {count(len(self._begun.prompts), 'message')} ({fresh})",
        )
        drive = self._drive = asyncio.create_task(self._driven(), name=f"agent of {row.id}")
        self._display = Display(runtime, self._place, self._begun)
        beside = self._display.tasks
        if self._watch.counts:
            beside.append(
                asyncio.create_task(self._watch.run(self._end_at_limit), name=f"budget of {row.id}")
            )
        try:
            await asyncio.wait((drive, self._outcome), return_when=asyncio.FIRST_COMPLETED)
            # A last update from them must not come after the final figures.
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            if self._display.tools is not None and self._display.tools.waits:
                await self._display.report_tools()
            await self._conclude(self._finished(drive))
            self._is_concluded.set_result(None)
            # What its program leaves behind counts too.
            await asyncio.wait({drive}, timeout=STREAM_END_S)
            if row.thread:
                runtime.send(Doing(thread=row.thread, text=""))
            snapshots = self._snapshots
            if runtime.settings.config.git.trailers and snapshots.before is not None:
                await trail(runtime, row, snapshots.workdir, snapshots.before.commit)
            if (ends := await snapshots.end()) is not None:
                await show_changes(runtime, row, snapshots.workdir, *ends)
            if self._begun.has_own_tree and drive.done():
                await tidy_workdir(runtime, row)
        finally:
            beginning = [self._snapshots.beginning] if self._snapshots.beginning is not None else []
            tasks = (drive, *beside, *beginning)
            for running in tasks:
                running.cancel()
            closing = [part.close() for part in (self._asking, self._publisher) if part is not None]
            await asyncio.gather(*tasks, *closing, return_exceptions=True)

    async def stop(self, by: PersonRef = NO_PERSON, *, forced: bool = False) -> None:
        """Ask the agent to end; force it if it does not, or at once. ``by`` is named in the thread."""
        self._stopping = True
        self._stopped_by = by
        ask = self._backend if not forced else None
        if ask is not None and await ask.stop(self.row.id) is False and not by:
            # Ctrl-C for a session, which continues. Stopping everything ends it.
            self._stopping = False
            return
        if ask is not None and by:
            await ask.stop(self.row.id)
        await self._cancel_after(STOP_GRACE_S if ask else 0)

    async def _end_at_limit(self) -> None:
        """End the agent, whose session can be continued."""
        if self._backend is not None:
            await self._backend.stop(self.row.id)
        await self._cancel_after(STOP_GRACE_S)

    async def _cancel_after(self, grace_s: float) -> None:
        if self._drive is not None:
            if grace_s:
                await settled_within(self._runtime.clock, self._drive, grace_s)
            self._drive.cancel()

    async def type(self, text: str) -> str:
        """Type into the running session; "" if that worked, else one line that says why not."""
        return await self._backend.type(self.row.id, text) if self._backend is not None else GONE

    async def steer(self, text: str) -> bool:
        """Put text into the running agent; False if it cannot take it."""
        return self._backend is not None and await self._backend.steer(self.row.id, text)

    async def decided(self, answer: ApprovalAnswer) -> None:
        """Give the agent a person's decision."""
        if self._asking is not None:
            await self._asking.decided(answer)

    def _asking_changed(self, waits_for: str, card_op_id: str | None) -> None:
        self.waits = bool(waits_for)
        self._watch.waits(waiting=self.waits)
        self._display.waits(waits_for, card_op_id)
        self._load_changed()

    async def _driven(self) -> None:
        try:
            runtime, row = self._runtime, self.row
            backend = await runtime.agents.get(row.agent, self._begun.choice)
            if self._begun.is_apart:
                words = " ".join(each.text for each in self._begun.prompts)
                task = runtime.redactor.redact(words) if self._begun.has_own_tree else None
                self._snapshots.workdir = await runtime.agents.workdir(row.conversation, task=task)
        except CodeButlerError as error:
            self._outcome.set_result(Finished(ok=False, text=str(error), reason="unavailable"))
            return
        if (request := await self._request()) is None:
            return
        if not backend.waits_until_ready:
            await self._snapshots.ready()
        self._backend = backend
        reached("spawn.before")
        async with aclosing(backend.start(request)) as stream:
            async for raw in stream:
                event = clean(raw, self._runtime.redactor.redact)
                if not isinstance(event, Finished):
                    await self._receive(backend, event)
                elif not self._outcome.done():
                    if self._publisher is not None or "<" in event.text:
                        event = await self._publishing().finish(event)
                    elif event.ok:
                        event = replace(event, text=tidied(event.text))
                    self._outcome.set_result(event)
                    await asyncio.wait({self._is_concluded}, timeout=ANSWER_FIRST_S)

    async def _request(self) -> TurnRequest | None:
        """The agent's whole input, once the files are there; None if there is nothing (any more). Raises
        StoreError."""
        begun, workdir, files = self._begun, self._snapshots.workdir, self._begun.attachments
        if files:
            files = await AttachmentFetcher(self._runtime, self._place, workdir).fetch(files)
        if os.path.lexists(self._runtime.home.root / RESULT_NAME):
            await warn_of_lacks(self._runtime, begun, files, self._session_id)
        self._prompt = prompt_of(begun, files, workdir)
        record = ""
        if begun.missed != Missed():
            before = min((key_of(each.id, begun.turn.channel_id) for each in begun.prompts), default=NOWHERE)
            record = await record_of(self._runtime, begun.missed, before, workdir)
        if self._stopping:
            self._outcome.set_result(Finished(ok=False, text="", reason="stopped"))
            return None
        if files and not begun.has_words and not any(map(is_usable, files)):
            self._outcome.set_result(Finished(ok=False, text=NOTHING_LEFT, reason="failed"))
            return None
        prompt = "\n\n".join(part for part in (record, self._prompt) if part)
        repo, memory, teaching = Path(self._runtime.settings.path), "", ""
        if begun.program is None:  # A program's own backend explains how to send something at once.
            teaching = instructions(repo, self._runtime.settings.config.envelope.prompt_file)
        if begun.facts or os.path.lexists(repo / STATE_DIR / MEMORY_NAME):
            memory = memory_block(read_memory(repo / STATE_DIR), begun.facts)
        return TurnRequest(
            turn_id=begun.turn.id,
            conversation=begun.turn.conversation,
            prompt=prompt,
            workdir=workdir,
            session_id=self._session_id,
            session_name=begun.session_name,
            system_prompt=system_prompt(str(workdir), memory, teaching),
            cost_before_usd=begun.cost_before_usd,
            put_back=begun.put_back,
            ready=self._snapshots.ready,
            notes=TurnNotes(self._runtime, begun.turn),
        )

    async def _receive(self, backend: AgentBackend, event: AgentEvent) -> None:
        match event:
            case Started(session_id=session_id, fresh=fresh):
                reached("spawn.after")
                self._session_id = session_id
                await self._runtime.commit(partial(self._remember, fresh=fresh))
            case Text(text=text):
                sends = self._publisher is not None or "<" in text
                event = Text(await self._publishing().take(text) if sends else tidied(text))
            case Approval() | Question():
                if self._asking is None:
                    self._asking = Asking(self._runtime, self.row, self._asking_changed)
                await self._asking.ask(backend, event, self._session_id or "")
            case ToolUse(name=name, input=given) if is_push_request(name):
                await self._publishing().ask_to_push(str(given.get("why", "")))
            case Withdrawn() if self._asking is not None:
                await self._asking.withdrawn(event)
        if self._trace is not None:
            self._trace.record(event)
        self._display.record(event)
        self._watch.usage = self._display.view.usage
        if self._watch.is_limited and self._watch.met is None:
            self._watch.judge()

    def _publishing(self) -> Publisher:
        if self._publisher is None:
            self._publisher = Publisher(self._runtime, self._place, self._snapshots.workdir)
        return self._publisher

    def _remember(self, uow: UnitOfWork, *, fresh: bool) -> None:
        """The agent has taken the turn."""
        if fresh:
            uow.post(self._place, SESSION_LOST)
        for prompt in self._begun.prompts:  # An edited message was not read.
            uow.messages.change({"acked": True}, id=prompt.id, content=prompt.text)
        session_id = self._session_id or ""
        before = self._snapshots.before
        uow.turns.update(self.row.id, session_id=session_id, tree_before=before.commit if before else None)
        if self._begun.program is not None:
            return
        # The conversation continues with this session, whose cost so far stays with it.
        known = uow.sessions.get(self.row.conversation, self.row.agent)
        uow.sessions.put(
            SessionRow(
                conversation=self.row.conversation,
                channel_id=self.row.channel_id,
                thread=self.row.thread,
                agent=self.row.agent,
                session_id=session_id,
                updated_at=uow.stamp,
                total_cost_usd=known.total_cost_usd if known and known.session_id == session_id else 0.0,
            )
        )

    def _finished(self, drive: asyncio.Task[None]) -> Finished:
        """How it ended; a broken turn, or one at a limit, says what to do."""
        if self._outcome.done():
            finished = self._outcome.result()
        elif drive.cancelled():
            finished = Finished(ok=False, text="", reason="stopped")
        else:
            line = "The agent ended without a result: ask again."
            if error := drive.exception():
                self._runtime.log("ERR", f"run {self.row.id} failed: {error!r}")
                line = NO_FILES if getattr(error, "errno", 0) in (EMFILE, ENFILE) else BROKEN
            finished = Finished(ok=False, text=line, reason="failed")
        if finished.usage == Usage():
            # The end brought no session: use the last one reported.
            finished = replace(finished, usage=self._display.view.usage)
        if self._watch.met is not None and not self._stopping and not finished.ok:
            return replace(finished, text=used_up_text(self._watch.met), reason="budget")
        return finished

    async def _conclude(self, finished: Finished) -> None:
        """Commit the outcome."""
        runtime = self._runtime
        if self._trace is not None:
            self._trace.end()
        hold: Hold | None = None
        if not self._stopping and not finished.ok:
            # A race's other agent need not wait for this one.
            waits = not race_in(self.row.conversation) or finished.reason == "overloaded"
            if waits and self._watch.met is not None:
                hold = Hold(self._watch.until)
            elif waits:
                finished, hold = await after_refusal(runtime, self.row, finished)
        # A turn that was done before the stop reached it counts as done.
        outcome: Outcome = "done" if finished.ok else "failed" if hold is None else "parked"
        if not finished.ok and (self._stopping or finished.reason == "stopped"):
            outcome = "stopped"
        ending = Ending(
            self.row,
            finished,
            outcome,
            replace(self._display.view, usage=finished.usage),
            runtime.clock.monotonic() - self._display.started_s,
            self._session_id,
            self._stopped_by,
            hold if outcome == "parked" else None,
            terminal=self._display.terminal,
            asked=self._asking is not None,
            worked_s=self._watch.worked_s,
        )
        reached("result.before")
        output = runtime.settings.config.output
        await runtime.commit(partial(conclude, output=output, ending=ending), surely="an answer")
        reached("result.after")
        begun = self._begun
        record_end(
            runtime, ending, self._prompt or prompt_of(begun, begun.attachments, self._snapshots.workdir)
        )
