"""One turn, from its first reaction to its answer.

Beginning and end are each one transaction, and the beginning is committed before anything is started: a crash
in between is found as an interrupted turn and never as a silent one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from codebutler.errors import CodeButlerError
from codebutler.process.killpoints import reached
from codebutler.process.waiting import wait_for
from codebutler.protocol.messages import LogTag, TurnStarted
from codebutler_worker.agents.answer import clean
from codebutler_worker.agents.backend import (
    AgentBackend,
    AgentEvent,
    Approval,
    Finished,
    Keyboard,
    Question,
    Started,
    Text,
    Withdrawn,
)
from codebutler_worker.budget.rules import used_up_text
from codebutler_worker.budget.watch import Watch
from codebutler_worker.conversation.asking.asking import Asking
from codebutler_worker.conversation.line.parking import others_than, resume_at
from codebutler_worker.conversation.line.typing import GONE
from codebutler_worker.conversation.turn.beginning import Begun
from codebutler_worker.conversation.turn.continuing import keep_session
from codebutler_worker.conversation.turn.display import Display
from codebutler_worker.conversation.turn.ending import Ending, conclude
from codebutler_worker.conversation.turn.parcels import Parcels
from codebutler_worker.conversation.turn.preparing import Preparing
from codebutler_worker.conversation.turn.trees import TurnTrees
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft, Place, place_of
from codebutler_worker.desk.naming import tag_of
from codebutler_worker.desk.todo import Verdict
from codebutler_worker.present.files import NOTHING_LEFT
from codebutler_worker.present.lines import count
from codebutler_worker.store.rows import TurnRow

STOP_GRACE_S = 6.0
STREAM_END_S = 5.0
# Ending the agent's processes takes about as long as telling its answer, which goes first.
ANSWER_FIRST_S = 3.0
# What a stopped turn has done is known when its processes have ended; its mark does not wait longer for that.
STOPPED_FIRST_S = 3.0
SESSION_LOST = (
    "⚠️ The earlier session could not be resumed, so this is a fresh one: it knows this message only."
)


class Turn:
    """A running turn. ``run`` ends when its outcome is committed; ``stop`` may be called at any time."""

    def __init__(self, desk: Desk, begun: Begun, load_changed: Callable[[], None]) -> None:
        self._desk = desk
        self._begun = begun
        self._place: Place = place_of(begun.turn)
        self._session_id = begun.turn.session_id
        self._stopping = False
        self._stopped_by = ""
        self._backend: AgentBackend | None = None
        self._drive: asyncio.Task[None] | None = None
        self._outcome: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        self._told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._changed: tuple[str, ...] = ()
        self._parcels = Parcels(desk, self._place)
        self._asking = Asking(desk, begun.turn, self._asking_changed)
        self._load_changed = load_changed
        self._display = Display(desk, self._place, begun)
        self._trees = TurnTrees(desk, begun.turn)
        self._preparing = Preparing(desk, begun, self._trees)
        self._watch = Watch(desk, begun.turn, lambda: self.waits)

    @property
    def row(self) -> TurnRow:
        """The turn as it was stored when it began; what became of it since is in the store."""
        return self._begun.turn

    @property
    def _tag(self) -> LogTag:
        return tag_of(self._desk.settings.config, self.row.agent)

    @property
    def is_program(self) -> bool:
        """Whether it runs a program instead of an agent."""
        return self._begun.program is not None

    async def run(self) -> None:
        """Run the agent and commit what came of it, as soon as it says so (its program may end later)."""
        started = TurnStarted(thread_ts=self.row.thread_ts, messages=self._begun.messages)
        self._desk.report.send(started)
        fresh = "resumed session" if self._session_id else "new session"
        self._desk.report.log(self._tag, f"processing {count(len(self._begun.said), 'message')} ({fresh})")
        drive = self._drive = asyncio.create_task(self._driven(), name=f"agent of {self.row.id}")
        drive.add_done_callback(lambda _: self._over.set())
        watching = asyncio.create_task(self._end_at_limit(), name=f"budget of {self.row.id}")
        self._display.start()
        ends: asyncio.Task[None] | None = None
        try:
            await _first(drive, self._outcome)
            # What it last wrote down must not come after the final figures.
            watching.cancel()
            await self._display.settle()
            finished, resume = self._settled(self._verdict(drive))
            stopped = self._is_stopped(finished)
            ends = asyncio.create_task(self._end(drive, stopped=stopped), name=f"end of {self.row.id}")
            if stopped:
                self._told.set_result(None)
                await asyncio.wait({ends}, timeout=STOPPED_FIRST_S)
            await self._conclude(finished, resume)
            if not self._told.done():
                self._told.set_result(None)
            await ends
        finally:
            tasks = [task for task in (drive, watching, ends) if task is not None]
            for task in tasks:
                task.cancel()
            parts = (self._display, self._asking, self._parcels, self._trees)
            closing = [part.close() for part in parts]
            await asyncio.gather(*tasks, *closing, return_exceptions=True)

    async def _end(self, drive: asyncio.Task[None], *, stopped: bool) -> None:
        """Once its outcome is told, or what it had done when it was stopped is to be: wait for the agent's program, and
        keep the tree as that has left it."""
        await self._told
        await asyncio.wait({drive}, timeout=STREAM_END_S)
        self._display.clear()
        await self._trees.end()
        if stopped:
            self._changed = await self._trees.changed()
        if drive.done():
            await self._preparing.tidy()

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
        return bool(self._asking.waits_for)

    def _asking_changed(self) -> None:
        self._display.waits(self._asking.waits_for, self._asking.card_op_id)
        self._load_changed()

    def _verdict(self, drive: asyncio.Task[None]) -> Finished:
        if self._outcome.done():
            return self._outcome.result()
        if drive.cancelled():
            return Finished(ok=False, text="", reason="stopped", usage=self._display.view.usage)
        line = "The agent ended without a result: ask again."
        if error := drive.exception():
            self._desk.report.log("ERR", f"turn {self.row.id} broke: {error!r}")
            line = "Something broke inside CodeButler: see its log, then ask again."
        return Finished(ok=False, text=line, reason="failed", usage=self._display.view.usage)

    async def _driven(self) -> None:
        try:
            backend = await self._desk.agents.get(self.row.agent)
            self._parcels.workdir = await self._preparing.find_place()
        except CodeButlerError as error:
            self._outcome.set_result(Finished(ok=False, text=str(error), reason="unavailable"))
            return
        await self._preparing.fetch()
        if self._stopping:
            self._outcome.set_result(Finished(ok=False, text="", reason="stopped"))
            return
        if self._preparing.is_empty:
            self._outcome.set_result(Finished(ok=False, text=NOTHING_LEFT, reason="failed"))
            return
        if not getattr(backend, "waits_until_ready", False):
            await self._trees.ready()
        self._backend = backend
        reached("spawn.before")
        stream = backend.start(self._preparing.request(self._session_id))
        try:
            async for heard in stream:
                event = clean(heard, self._desk.redactor.redact)
                if isinstance(event, Started):
                    reached("spawn.after")
                if not isinstance(event, Finished):
                    await self._heard(backend, event)
                elif not self._outcome.done():
                    self._outcome.set_result(await self._parcels.finish(event))
                    await asyncio.wait({self._told}, timeout=ANSWER_FIRST_S)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def _heard(self, backend: AgentBackend, event: AgentEvent) -> None:
        match event:
            case Started(session_id=session_id, fresh=fresh):
                self._session_id = session_id
                await self._desk.commit(lambda draft: self._remember(draft, fresh=fresh))
            case Text(text=text):
                event = Text(await self._parcels.take(text))
            case Approval() | Question():
                await self._asking.heard(backend, event, self._session_id or "")
            case Withdrawn():
                await self._asking.withdrawn(event)
        self._display.heard(event)
        self._watch.heard(self._display.view.usage)

    def _remember(self, draft: Draft, *, fresh: bool) -> None:
        """The agent has taken the turn."""
        if fresh:
            draft.post(self._place, SESSION_LOST)
        draft.uow.messages.acknowledge((said.id, said.text) for said in self._begun.said)
        session_id = self._session_id or ""
        draft.uow.turns.update(self.row.id, session_id=session_id, tree_before=self._trees.before)
        if not self.is_program:
            keep_session(draft, self.row, session_id)

    def _settled(self, finished: Finished) -> tuple[Finished, datetime | None]:
        """How the turn ended, and when it goes on by itself."""
        if self._stopping or finished.ok:
            return finished, None
        if self._watch.met is not None:
            return replace(finished, text=used_up_text(self._watch.met), reason="budget"), self._watch.until
        return finished, resume_at(finished, self.row.attempts, self._desk.clock.now())

    def _is_stopped(self, finished: Finished) -> bool:
        """Whether what it had done is told instead of an answer."""
        return not self.is_program and not finished.ok and (self._stopping or finished.reason == "stopped")

    async def _conclude(self, finished: Finished, resume: datetime | None) -> None:
        """Commit the outcome."""
        ending = Ending(
            self.row,
            finished,
            self._display.view,
            self._display.elapsed_s,
            self._session_id,
            self._stopping,
            self._stopped_by,
            resume,
            await others_than(self._desk, self.row.agent) if resume and self._watch.met is None else (),
            showing=self._display.showing,
            worked_s=self._watch.worked_s,
            changed=self._changed,
        )
        reached("result.before")
        output = self._desk.settings.config.output
        await self._desk.commit_surely(lambda draft: conclude(draft, output, ending), "an answer")
        reached("result.after")
        for tag, text in ending.log_lines(self._tag):
            self._desk.report.log(tag, text)
        self._desk.report.audit(ending.audit(self._preparing.prompt))


async def _first(*futures: asyncio.Future[None] | asyncio.Future[Finished]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
