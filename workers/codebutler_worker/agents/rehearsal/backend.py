"""RehearsalBackend: an AgentBackend that needs no account, no key and no network."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.agents.backend import (
    AgentEvent,
    Answer,
    Finished,
    Plan,
    Reason,
    Started,
    Text,
    ToolResult,
    ToolUse,
    TurnRequest,
    Usage,
)
from codebutler_worker.agents.record import SessionLog
from codebutler_worker.agents.rehearsal import wording
from codebutler_worker.agents.rehearsal.asking import decided, request_of
from codebutler_worker.agents.rehearsal.brain import carried_out, check, described, steps_of
from codebutler_worker.agents.rehearsal.intents import Help, Intent, Review, understand
from codebutler_worker.agents.rehearsal.script import Ask, Delay, Emit, Hold, Script, Step
from codebutler_worker.agents.rehearsal.tools import ToolError, Tools
from codebutler_worker.agents.running import AgentContext, RunningTurns
from codebutler_worker.tools.outcome import PlanStep

SESSION = re.compile(r"rehearsal-[0-9a-f]{32}")
MAX_REMEMBERED = 20
PACE_S = 2.0
"""For each step of a review: less, and nobody sees its plan."""
STOPPED = Finished(ok=False, text="Stopped.", reason="stopped")
R = TypeVar("R")


class StoppedError(Exception):
    """The turn was asked to end."""


@dataclass
class _Turn:
    request: TurnRequest
    log: SessionLog
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    answers: dict[str, asyncio.Future[Answer]] = field(default_factory=dict)

    def expect(self, request_id: str) -> asyncio.Future[Answer]:
        """The answer to what is about to be asked."""
        reply = self.answers[request_id] = asyncio.get_running_loop().create_future()
        return reply

    async def unless_stopped(self, work: Coroutine[Any, Any, R]) -> R:
        """The result of ``work``, which is cancelled when the turn is stopped: raises StoppedError."""
        task = asyncio.create_task(work, name=f"rehearsal:{self.request.turn_id}")
        stopping = asyncio.create_task(self.stopping.wait(), name=f"stop:{self.request.turn_id}")
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
            if self.stopping.is_set():
                raise StoppedError
            return task.result()
        finally:
            task.cancel()
            stopping.cancel()
            await asyncio.gather(task, stopping, return_exceptions=True)


@dataclass
class _Work:
    """What one turn does and has to say. ``pace_s``: how long each step takes at least."""

    earlier: tuple[str, ...]
    pace_s: float
    ok: bool = True
    answers: list[str] = field(default_factory=list)

    def failed(self, why: str) -> None:
        """A step did not work; the others are tried all the same."""
        self.ok = False
        self.answers.append(why)


class RehearsalBackend:
    """Recognises plain sentences and works through the sandbox; with a ``script`` it does what a test says.

    ``home`` is the HOME its programs get, of which the sandbox shows nothing.
    """

    name = "rehearsal"
    """Where what its programs write is kept."""

    def __init__(self, context: AgentContext, home: Path, script: Script | None = None) -> None:
        self._sandbox = context.sandbox
        self._home = home
        self._clock = context.clock
        self._script = script or Script(())
        self._running: RunningTurns[_Turn] = RunningTurns(context.clock, context.logs)
        self._said: dict[str, list[str]] = {}

    def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. Closing the iterator early stops the turn and everything it started."""
        return self._running.run(turn, self._listening)

    async def _listening(self, request: TurnRequest, log: SessionLog) -> AsyncGenerator[AgentEvent]:
        turn = _Turn(request, log)
        if self._running.unwanted(request.turn_id):
            turn.stopping.set()
        with self._running.heard_by(request.turn_id, turn):
            async with aclosing(self._work(turn)) as events:
                async for event in events:
                    yield event

    async def _work(self, turn: _Turn) -> AsyncGenerator[AgentEvent]:
        try:
            steps = self._script.next_turn()
            events = self._rehearse(turn) if steps is None else self._play(turn, steps)
            async with aclosing(events):
                async for event in events:
                    yield event
                    if isinstance(event, Finished):
                        return
        except StoppedError:
            yield STOPPED
        except (SandboxUnavailableError, AgentUnavailableError) as error:
            yield Finished(ok=False, text=str(error), reason="unavailable")

    async def answer(self, turn_id: str, request_id: str, answer: Answer) -> bool:
        """Reply to a pending Approval or Question of a script; False if nobody waits for it any more."""
        turn = self._running.listener(turn_id)
        waiting = turn.answers.pop(request_id, None) if turn else None
        if waiting is None or waiting.done():
            return False
        waiting.set_result(answer)
        return True

    async def steer(self, turn_id: str, text: str) -> bool:  # noqa: ARG002 - the port's signature
        """Never: what is said meanwhile waits for its own turn."""
        return False

    async def stop(self, turn_id: str) -> None:
        """End the turn at the step where it is; its programs die with it."""
        if turn := self._running.stop(turn_id):
            turn.stopping.set()

    async def close(self) -> None:
        """End every process."""
        for turn in self._running.close():
            turn.stopping.set()

    def _session(self, wanted: str | None) -> Started:
        """A session id says by its form that it is ours, so one survives a restart; its memory does not."""
        if wanted and SESSION.fullmatch(wanted):
            return Started(wanted)
        return Started(f"rehearsal-{uuid4().hex}", fresh=wanted is not None)

    async def _rehearse(self, turn: _Turn) -> AsyncGenerator[AgentEvent]:
        started = self._session(turn.request.session_id)
        yield started
        earlier = self._said.setdefault(started.session_id, [])
        introduce = not earlier and turn.request.session_id != started.session_id
        asked = understand(turn.request.prompt) or [Help()]
        steps = steps_of(asked)
        work = _Work(earlier=tuple(earlier), pace_s=PACE_S if Review() in asked else 0.0)
        for number, intent in enumerate(steps):
            if len(steps) > 1:
                yield _plan(steps, number)
            async with aclosing(self._step(turn, work, intent)) as events:
                async for event in events:
                    yield event
        if len(steps) > 1:
            yield _plan(steps, len(steps))
        earlier.append(turn.request.prompt)
        del earlier[:-MAX_REMEMBERED]
        if introduce and work.ok and Help() not in asked:
            work.answers.append(wording.INTRODUCTION)
        text = "\n\n".join(work.answers)
        usage = _usage(turn.request.prompt, text, len(steps))
        if work.ok:
            yield Text(text)
        yield usage
        reason: Reason = "done" if work.ok else "failed"
        yield Finished(ok=work.ok, text=text, reason=reason, usage=usage, total_cost_usd=0.0)

    async def _step(self, turn: _Turn, work: _Work, intent: Intent) -> AsyncGenerator[AgentEvent]:
        """Ask for what has to be asked, and do it."""
        request = turn.request
        tools = Tools(self._sandbox, request.workdir, self._home, turn.log.write, request.conversation)
        call_id = f"{request.turn_id}-{len(work.answers) + 1}"
        todo: Intent | str = intent
        try:
            check(intent, tools)
            if (question := request_of(intent, call_id)) is not None:
                reply = turn.expect(question.id)
                yield question
                todo = decided(intent, await turn.unless_stopped(_answered(reply)))
        except ToolError as error:
            work.failed(str(error))
            return
        if isinstance(todo, str):
            work.answers.append(todo)
            return
        name, summary = described(todo)
        if name:
            yield ToolUse(call_id, name, summary)
        await turn.unless_stopped(self._clock.sleep(work.pace_s))
        try:
            work.answers.append(await turn.unless_stopped(carried_out(todo, tools, work.earlier)))
        except ToolError as error:
            work.failed(str(error))
        if name:
            yield ToolResult(call_id, work.ok, work.answers[-1])

    async def _play(self, turn: _Turn, steps: Sequence[Step]) -> AsyncGenerator[AgentEvent]:
        yield self._session(turn.request.session_id)
        for step in steps:
            match step:
                case Emit(event):
                    yield event
                case Hold(gate, reached):
                    reached.set()
                    await turn.unless_stopped(gate.wait())
                case Delay(seconds):
                    await turn.unless_stopped(self._clock.sleep(seconds))
                case Ask(event):
                    reply = turn.expect(event.id)
                    yield event
                    await turn.unless_stopped(_answered(reply))
        yield Finished(ok=True, text="", reason="done")


async def _answered(reply: asyncio.Future[Answer]) -> Answer:
    return await reply


def _plan(intents: Sequence[Intent], at: int) -> Plan:
    """The steps, of which the one numbered ``at`` is under way."""
    texts = [wording.step(*described(intent)) for intent in intents]
    return Plan(
        tuple(
            PlanStep(text, "done" if number < at else "in_progress" if number == at else "pending")
            for number, text in enumerate(texts)
        )
    )


def _usage(prompt: str, answer: str, tools: int) -> Usage:
    """No model counted these: words stand in for tokens."""
    return Usage(len(prompt.split()), len(answer.split()), 0.0, tools + 1)
