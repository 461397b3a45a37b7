"""One turn, from its first reaction to its answer.

Beginning and end are each one transaction, and the beginning is committed before anything is started: a crash
in between is found as an interrupted turn and never as a silent one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from codebutler.errors import CodeButlerError, StoreError
from codebutler.process.killpoints import reached
from codebutler_worker.agents.backend import (
    AgentBackend,
    AgentEvent,
    Approval,
    Finished,
    Keyboard,
    Output,
    Question,
    Started,
    Text,
    TurnRequest,
    Withdrawn,
)
from codebutler_worker.agents.cleaning import clean
from codebutler_worker.agents.teaching import instructions
from codebutler_worker.budget.watch import Watch
from codebutler_worker.conversation.asking import Asking
from codebutler_worker.conversation.background import gather
from codebutler_worker.conversation.beginning import Begun
from codebutler_worker.conversation.desk import Desk, Draft, Place
from codebutler_worker.conversation.ending import Ending, conclude
from codebutler_worker.conversation.luggage import Luggage
from codebutler_worker.conversation.memory_file import read_memory
from codebutler_worker.conversation.parcels import Parcels
from codebutler_worker.conversation.parking import others_than, resume_at
from codebutler_worker.conversation.progress import ProgressMessage
from codebutler_worker.conversation.prompt import system_prompt
from codebutler_worker.conversation.queueing import (
    Verdict,
    place_of,
)
from codebutler_worker.conversation.showing import Showing
from codebutler_worker.conversation.telling import Telling
from codebutler_worker.conversation.trees import TurnTrees
from codebutler_worker.conversation.typing import GONE
from codebutler_worker.conversation.waiting import wait_for
from codebutler_worker.memory.block import memory_block
from codebutler_worker.memory.facts import TurnNotes
from codebutler_worker.present import progress
from codebutler_worker.present.budget import used_up_text
from codebutler_worker.present.files import NOTHING_LEFT
from codebutler_worker.present.lines import count
from codebutler_worker.present.progress import Message
from codebutler_worker.present.reducer import View, reduce
from codebutler_worker.store.rows import SessionRow, TurnRow
from codebutler_worker.store.state_dir import STATE_DIR

STOP_GRACE_S = 6.0
STREAM_END_S = 5.0
RETRY_COMMIT_S = 5.0
SESSION_LOST = (
    "⚠️ The earlier session could not be resumed, so this is a fresh one: it knows this message only."
)


class Turn:
    """A running turn. ``run`` ends when its outcome is committed; ``stop`` may be called at any time."""

    def __init__(self, desk: Desk, begun: Begun, load_changed: Callable[[], None]) -> None:
        self._desk = desk
        self._begun = begun
        self._place: Place = place_of(begun.turn)
        self._view = View()
        self._session_id = begun.turn.session_id
        self._started_s = desk.clock.monotonic()
        self._stopping = False
        self._stopped_by = ""
        self._backend: AgentBackend | None = None
        self._drive: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._progress: ProgressMessage | None = None
        self._record = ""
        self._luggage = Luggage(desk, self._place, begun.attachments)
        self._parcels = Parcels(desk, self._place)
        self._asking = Asking(desk, begun.turn, load_changed)
        self._showing: Showing | None = None
        if begun.program is not None:
            self._showing = Showing(desk, self._place, begun.turn.id, begun.program, begun.progress_op_id)
        self._telling = Telling(desk, self._place, begun.progress_op_id)
        self._trees = TurnTrees(desk, begun.turn)
        self._watch = Watch(desk, begun.turn, lambda: self._asking.waits)

    @property
    def row(self) -> TurnRow:
        return self._begun.turn

    @property
    def is_program(self) -> bool:
        """Whether it runs a program instead of an agent."""
        return self._begun.program is not None

    async def run(self) -> None:
        """Run the agent and commit what came of it, as soon as it says so (its program may end later)."""
        fresh = "resumed session" if self._session_id else "new session"
        self._desk.report.log("CLD", f"processing {count(len(self._begun.said), 'message')} ({fresh})")
        drive = self._drive = asyncio.create_task(self._driven(), name=f"agent of {self.row.id}")
        drive.add_done_callback(lambda _: self._over.set())
        showing = self._show_progress()
        watching = asyncio.create_task(self._end_at_limit(), name=f"budget of {self.row.id}")
        self._telling.start()
        try:
            await _first(drive, self._outcome)
            showing.cancel()
            await self._telling.close()
            await self._conclude(self._verdict(drive))
            await asyncio.wait({drive}, timeout=STREAM_END_S)
            self._telling.clear()
            await self._trees.end()
        finally:
            self._telling.stop()
            for task in (drive, showing, watching):
                task.cancel()
            closing = (self._asking.close(), self._parcels.close(), self._trees.close())
            await asyncio.gather(drive, showing, watching, *closing, return_exceptions=True)

    async def stop(self, by: str = "", *, forced: bool = False) -> None:
        """Ask the agent to end; force it if it does not, or at once. ``by`` is told in the thread."""
        self._stopping = True
        self._stopped_by = by
        ask = self._backend if not forced else None
        if ask is not None and await ask.stop(self.row.id) is False and not by:
            # Ctrl-C for a session, which goes on. Who stops everything wants it to end.
            self._stopping = False
            return
        if ask is not None and by:
            await ask.stop(self.row.id)
        if self._drive is not None:
            await wait_for(self._desk.clock, self._over, STOP_GRACE_S if ask else 0)
            self._drive.cancel()

    async def _end_at_limit(self) -> None:
        """Once a budget's limit is met: end the agent, whose session can be gone on with."""
        await self._watch.run()
        if self._backend is not None:
            await self._backend.stop(self.row.id)
        if self._drive is not None:
            await wait_for(self._desk.clock, self._over, STOP_GRACE_S)
            self._drive.cancel()

    async def type(self, text: str) -> str:
        """Type into the session that runs; "" if that worked, else one line that says why not."""
        return await self._backend.type(self.row.id, text) if isinstance(self._backend, Keyboard) else GONE

    async def steer(self, text: str) -> bool:
        """Put text into the running agent; False if it cannot take it."""
        return self._backend is not None and await self._backend.steer(self.row.id, text)

    async def decided(self, verdict: Verdict) -> None:
        """Tell the agent what a person decided."""
        await self._asking.decided(verdict)

    @property
    def waits(self) -> bool:
        """Whether it waits for a person."""
        return self._asking.waits

    def _verdict(self, drive: asyncio.Task[None]) -> Finished:
        if self._outcome.done():
            return self._outcome.result()
        if drive.cancelled():
            return Finished(ok=False, text="", reason="stopped", usage=self._view.usage)
        line = "The agent ended without a result: ask again."
        if error := drive.exception():
            self._desk.report.log("ERR", f"turn {self.row.id} broke: {error!r}")
            line = "Something broke inside CodeButler: see its log, then ask again."
        return Finished(ok=False, text=line, reason="failed", usage=self._view.usage)

    async def _driven(self) -> None:
        try:
            backend = await self._desk.agents.get(self.row.agent)
        except CodeButlerError as error:
            self._outcome.set_result(Finished(ok=False, text=str(error), reason="unavailable"))
            return
        await self._luggage.bring()
        self._record = await gather(self._desk, self._begun.missed, self._begun.first_ts)
        if self._stopping:
            self._outcome.set_result(Finished(ok=False, text="", reason="stopped"))
            return
        if self._begun.attachments and not self._luggage.usable and not self._prompt_words():
            self._outcome.set_result(Finished(ok=False, text=NOTHING_LEFT, reason="failed"))
            return
        if not getattr(backend, "waits_until_ready", False):
            await self._trees.ready()
        self._backend = backend
        reached("spawn.before")
        stream = backend.start(self._request())
        try:
            async for heard in stream:
                event = clean(heard, self._desk.redactor.redact)
                if isinstance(event, Started):
                    reached("spawn.after")
                if not isinstance(event, Finished):
                    await self._heard(backend, event)
                elif not self._outcome.done():
                    self._outcome.set_result(await self._parcels.finish(event))
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    @property
    def _prompt(self) -> str:
        return self._begun.prompt(self._luggage.rows, self._desk.settings.path)

    def _prompt_words(self) -> bool:
        """Whether there is anything to do but look at files."""
        return bool(self.row.reason) or any(said.text.strip() for said in self._begun.said)

    def _request(self) -> TurnRequest:
        repo = Path(self._desk.settings.path)
        return TurnRequest(
            turn_id=self.row.id,
            conversation=self.row.conversation,
            prompt="\n\n".join(part for part in (self._record, self._prompt) if part),
            workdir=repo,
            session_id=self._session_id,
            session_name=self._begun.session_name,
            system_prompt=system_prompt(
                str(repo),
                memory_block(read_memory(repo / STATE_DIR), self._begun.facts),
                self._teaching(repo),
            ),
            cost_before_usd=self._begun.cost_before_usd,
            put_back=self._begun.put_back,
            ready=self._trees.ready,
            notes=TurnNotes(self._desk, self.row),
        )

    def _teaching(self, repo: Path) -> str:
        """How to say something at once; a program is taught by its own backend."""
        return "" if self.is_program else instructions(repo, self._desk.settings.config.envelope.prompt_file)

    async def _heard(self, backend: AgentBackend, event: AgentEvent) -> None:
        match event:
            case Started(session_id=session_id, fresh=fresh):
                self._session_id = session_id
                await self._desk.commit(lambda draft: self._remember_session(draft, fresh=fresh))
            case Text(text=text):
                event = Text(await self._parcels.take(text))
            case Approval() | Question():
                await self._asking.heard(backend, event, self._session_id or "")
            case Output():
                if self._showing is not None:
                    self._showing.take(event)
            case Withdrawn():
                await self._asking.withdrawn(event)
        view = reduce(self._view, event)
        self._telling.heard(event, view)
        self._watch.heard(view.usage)
        if view != self._view:
            self._view = view
            if self._progress is not None:
                self._progress.refresh()

    def _remember_session(self, draft: Draft, *, fresh: bool) -> None:
        turn = self.row
        if fresh:
            draft.post(self._place, SESSION_LOST)
        known = draft.uow.sessions.get(turn.conversation, turn.agent)
        session_id = self._session_id or ""
        draft.uow.messages.acknowledge(turn.id)
        draft.uow.turns.update(turn.id, session_id=session_id, tree_before=self._trees.before)
        if self.is_program:
            return
        draft.uow.sessions.put(
            SessionRow(
                conversation=turn.conversation,
                channel_id=turn.channel_id,
                thread_ts=turn.thread_ts,
                agent=turn.agent,
                session_id=session_id,
                updated_at=draft.stamp,
                total_cost_usd=known.total_cost_usd if known and known.session_id == session_id else 0.0,
            )
        )

    def _show_progress(self) -> asyncio.Task[None]:
        if self._showing is not None:
            return asyncio.create_task(self._showing.run(), name=f"terminal of {self.row.id}")
        if self._begun.progress_op_id is not None:
            self._progress = ProgressMessage(
                self._desk, self._place, self._begun.progress_op_id, self._render
            )
        showing = self._progress.run() if self._progress else asyncio.sleep(0)
        return asyncio.create_task(showing, name=f"progress of {self.row.id}")

    def _render(self) -> tuple[Message, str]:
        message = progress.running(self._view, self._elapsed_s(), self.row.id, self.row.agent)
        return message, self._view.last_tool

    def _elapsed_s(self) -> float:
        return self._desk.clock.monotonic() - self._started_s

    def _settled(self, finished: Finished) -> tuple[Finished, datetime | None]:
        """How the turn ended, and when it goes on by itself."""
        if self._stopping or finished.ok:
            return finished, None
        if self._watch.met is not None:
            return replace(finished, text=used_up_text(self._watch.met), reason="budget"), self._watch.until
        return finished, resume_at(finished, self.row.attempts, self._desk.clock.now())

    async def _conclude(self, finished: Finished) -> None:
        """Commit the outcome; a full disk must not cost an answer, so it is tried until it works."""
        finished, resume = self._settled(finished)
        ending = Ending(
            self.row,
            finished,
            self._view,
            self._elapsed_s(),
            self._session_id,
            self._stopping,
            self._stopped_by,
            resume,
            await others_than(self._desk, self.row.agent) if resume and self._watch.met is None else (),
            showing=self._showing,
            worked_s=self._watch.worked_s,
        )
        reached("result.before")
        while True:
            try:
                await self._desk.commit(
                    lambda draft: conclude(draft, self._desk.settings.config.output, ending)
                )
                break
            except StoreError as error:
                self._desk.report.log("ERR", f"an answer waits for the store: {error}")
                await self._desk.clock.sleep(RETRY_COMMIT_S)
        reached("result.after")
        for tag, text in ending.log_lines():
            self._desk.report.log(tag, text)
        self._desk.report.audit(ending.audit(self._prompt))


async def _first(*futures: asyncio.Future[None] | asyncio.Future[Finished]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
