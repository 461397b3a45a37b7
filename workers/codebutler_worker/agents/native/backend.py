"""NativeBackend: our own loop behind the AgentBackend port."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path

from codebutler.config.schema import PermissionMode
from codebutler.domain.errors import CodeButlerError, StoreError
from codebutler_worker.agents.backend import AgentEvent, Answer, Finished, TurnRequest
from codebutler_worker.agents.native import ending
from codebutler_worker.agents.native.acting import Acting
from codebutler_worker.agents.native.history import History
from codebutler_worker.agents.native.journalist import AgentLog
from codebutler_worker.agents.native.loop import Limits, stopped
from codebutler_worker.agents.native.model import ModelError, System
from codebutler_worker.agents.native.prompt import standing_orders
from codebutler_worker.agents.native.session import Session
from codebutler_worker.agents.native.sessions import Sessions
from codebutler_worker.agents.native.turn import Thinker, Turn
from codebutler_worker.agents.native.waits import CutOffError, Waits
from codebutler_worker.agents.record import SessionLog
from codebutler_worker.agents.running import AgentContext, RunningTurns
from codebutler_worker.egress.outlet import noted
from codebutler_worker.sandbox.port import SandboxPolicy
from codebutler_worker.tools.port import Context, Tool
from codebutler_worker.tools.programs import SandboxPrograms
from codebutler_worker.tools.shell import ShellTerminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How the agent works, whatever it works on."""

    limits: Limits
    timeout_s: float = 1800.0
    mode: PermissionMode = "bypassPermissions"
    strict: bool = False


@dataclass(slots=True)
class _Listener:
    waits: Waits
    turn: Turn | None = None


class NativeBackend:
    """Runs turns of the native agent. ``tools`` are offered to the model in this order; ``policy`` makes that of a
    working directory and a conversation."""

    name = "native"

    def __init__(
        self,
        thinker: Thinker,
        tools: Sequence[Tool],
        context: AgentContext,
        policy: Callable[[Path, str], SandboxPolicy],
        sessions: Sessions,
        habits: Habits,
    ) -> None:
        self._thinker = thinker
        self._tools = tuple(tools)
        self._context = context
        self._policy = policy
        self._sessions = sessions
        self._habits = habits
        self._clock = context.clock
        self._running: RunningTurns[_Listener] = RunningTurns(context.clock, context.logs)

    def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. Closing the iterator early stops the turn and everything it started."""
        return self._running.run(turn, self._listening)

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:
        """Reply to a pending Approval or Question; False if nobody waits for it any more."""
        listener = self._running.listener(turn_id)
        return listener is not None and listener.waits.answer(request_id, answer)

    async def steer(self, turn_id: str, text: str) -> bool:
        """Put text into the running turn; False if it cannot take it any more."""
        listener = self._running.listener(turn_id)
        return listener is not None and listener.turn is not None and listener.turn.steer(text)

    async def stop(self, turn_id: str) -> None:
        """End the turn at the step where it is; its programs die with it."""
        if listener := self._running.stop(turn_id):
            listener.waits.stopping.set()

    async def close(self) -> None:
        """End every turn."""
        for listener in self._running.close():
            listener.waits.stopping.set()
        await self._thinker.model.close()

    async def _listening(self, request: TurnRequest, log: SessionLog) -> AsyncGenerator[AgentEvent]:
        listener = _Listener(Waits(self._clock, self._habits.timeout_s))
        if self._running.unwanted(request.turn_id):
            listener.waits.stopping.set()
        with self._running.heard_by(request.turn_id, listener):
            async with aclosing(self._in_session(request, listener, log)) as events:
                async for event in events:
                    yield event

    async def _in_session(
        self, request: TurnRequest, listener: _Listener, log: SessionLog
    ) -> AsyncGenerator[AgentEvent]:
        try:
            session = await self._session(request)
        except CodeButlerError as error:
            yield Finished(ok=False, text=str(error), reason="unavailable")
            return
        self._running.claim(session.id)
        try:
            if session.fresh:
                request = replace(request, cost_before_usd=0.0)
            async with aclosing(self._in_terminal(request, listener, session, log)) as events:
                async for event in events:
                    yield event
        finally:
            await self._running.release({session.id}, session.close(), f"end:{session.id}")

    async def _session(self, request: TurnRequest) -> Session:
        """The session it names, or a new one. Raises StoreError."""
        if request.session_id is not None:
            found = await asyncio.to_thread(self._sessions.resume, request.session_id)
            if found is not None:
                return Session(*found)
        now = self._clock.now()
        journal = await asyncio.to_thread(self._sessions.begin, now.isoformat(), now.timestamp())
        session = Session(journal, History(), fresh=request.session_id is not None)
        orders = await asyncio.to_thread(self._orders, request)
        await session.say(System(orders))
        return session

    def _orders(self, request: TurnRequest) -> str:
        appended = "\n\n".join(filter(None, (request.system_prompt, self._context.outlet.told())))
        return standing_orders(request.workdir, appended, strict=self._habits.strict)

    async def _in_terminal(
        self, request: TurnRequest, listener: _Listener, session: Session, record: SessionLog
    ) -> AsyncGenerator[AgentEvent]:
        policy = self._policy(request.workdir, request.conversation)
        sandbox, outlet, clock = self._context.sandbox, self._context.outlet, self._clock
        own = replace(policy, own_terminal=True)
        terminal = ShellTerminal(sandbox, own, clock, session.history.cwd, outlet)
        programs = SandboxPrograms(sandbox, policy, outlet)
        context = Context(
            workdir=request.workdir,
            turn_id=request.turn_id,
            conversation=request.conversation,
            programs=programs,
            terminal=terminal,
            notes=request.notes,
        )
        log = AgentLog(record, clock, sandbox.name)
        acting = Acting(self._tools, context, self._habits.mode, listener.waits, log, clock)
        turn = listener.turn = Turn(request, self._thinker, acting, session, self._habits.limits)
        try:
            async with aclosing(self._ended(turn, request, log)) as events:
                async for event in events:
                    if not isinstance(event, Finished):
                        yield event
                        continue
                    with contextlib.suppress(StoreError):  # what is missing is mended when it is read
                        await turn.close(terminal.cwd if terminal.begun else session.history.cwd)
                    refused = (*programs.refused, *terminal.refused)
                    # The answer does not wait for the end of what still runs; whoever reads on does.
                    yield replace(event, text=noted(event.text, refused)) if event.ok else event
        finally:
            await terminal.close()

    async def _ended(self, turn: Turn, request: TurnRequest, log: AgentLog) -> AsyncGenerator[AgentEvent]:
        """The turn's events, and what they came to."""
        before_usd = request.cost_before_usd
        try:
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
            assert turn.leave is not None
            end = ending.left(turn.leave, turn.progress, turn.usage, before_usd)
            why = str(turn.leave.exit)
        except CutOffError as error:
            turn.progress = stopped(turn.progress)
            minutes = self._habits.timeout_s / 60
            text = "Stopped." if error.reason == "stopped" else ending.TIMEOUT.format(minutes=minutes)
            end, why = ending.finished(error.reason, text, turn.usage, before_usd), error.reason
        except ModelError as error:
            end = ending.failed(error, turn.usage, before_usd, self._clock.now())
            why = error.trouble
        except CodeButlerError as error:
            end, why = ending.finished("unavailable", str(error), turn.usage, before_usd), "unavailable"
        log.ended(why, turn.progress.tokens, turn.progress.cost_usd, turn.progress.turns)
        yield end
