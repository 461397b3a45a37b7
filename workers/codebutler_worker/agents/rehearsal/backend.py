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

from codebutler.clock import Clock
from codebutler.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.agents.backend import (
    AgentEvent,
    Answer,
    Finished,
    Plan,
    Started,
    Text,
    ToolResult,
    ToolUse,
    TurnRequest,
    Usage,
)
from codebutler_worker.agents.record import SessionLog, SessionLogs
from codebutler_worker.agents.rehearsal import wording
from codebutler_worker.agents.rehearsal.brain import carried_out, described
from codebutler_worker.agents.rehearsal.intents import Intent, understand
from codebutler_worker.agents.rehearsal.script import Ask, Delay, Emit, Hold, Script, Step
from codebutler_worker.agents.rehearsal.tools import ToolError, Tools
from codebutler_worker.agents.running import RunningTurns
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.tools.plan import PlanStep

SESSION = re.compile(r"rehearsal-[0-9a-f]{32}")
MAX_REMEMBERED = 20
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


class RehearsalBackend:
    """Recognises plain sentences and works through the sandbox; with a ``script`` it does what a test says.

    ``home`` is the HOME its programs get, of which the sandbox shows nothing.
    """

    name = "rehearsal"
    logs: SessionLogs | None = None
    """Where what its programs write is kept."""

    def __init__(self, sandbox: Sandbox, home: Path, clock: Clock, script: Script | None = None) -> None:
        self._sandbox = sandbox
        self._home = home
        self._clock = clock
        self._script = script or Script(())
        self._running: RunningTurns[_Turn] = RunningTurns(clock)
        self._said: dict[str, list[str]] = {}

    def start(self, turn: TurnRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn. Closing the iterator early stops the turn and everything it started."""
        return self._running.run(turn, self.logs, self._listening)

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
        intents = understand(turn.request.prompt)
        answers = [] if intents else [wording.HELP]
        ok = True
        for number, intent in enumerate(intents):
            if len(intents) > 1:
                yield _plan(intents, number)
            name, summary = described(intent)
            call_id = f"{turn.request.turn_id}-{number + 1}"
            if name:
                yield ToolUse(call_id, name, summary)
            done, answer = await turn.unless_stopped(self._attempt(turn, intent, tuple(earlier)))
            ok = ok and done
            if name:
                yield ToolResult(call_id, done, answer)
            answers.append(answer)
        if len(intents) > 1:
            yield _plan(intents, len(intents))
        earlier.append(turn.request.prompt)
        del earlier[:-MAX_REMEMBERED]
        if introduce and intents:
            answers.append(wording.INTRODUCTION)
        text = "\n\n".join(answers)
        usage = _usage(turn.request.prompt, text, len(intents))
        yield Text(text)
        yield usage
        yield Finished(ok=ok, text=text, reason="done" if ok else "failed", usage=usage, total_cost_usd=0.0)

    async def _attempt(self, turn: _Turn, intent: Intent, earlier: Sequence[str]) -> tuple[bool, str]:
        tools = Tools(
            self._sandbox, turn.request.workdir, self._home, turn.log.write, turn.request.conversation
        )
        try:
            return True, await carried_out(intent, tools, earlier)
        except ToolError as error:
            return False, f"That did not work: {error}"

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
                    reply = turn.answers[event.id] = asyncio.get_running_loop().create_future()
                    yield event
                    await turn.unless_stopped(_answered(reply))
        yield Finished(ok=True, text="", reason="done")


async def _answered(reply: asyncio.Future[Answer]) -> Answer:
    return await reply


def _plan(intents: Sequence[Intent], at: int) -> Plan:
    """The steps, of which the one numbered ``at`` is under way."""
    texts = [" ".join(described(intent)).strip() or "Answer" for intent in intents]
    return Plan(
        tuple(
            PlanStep(text, "done" if number < at else "in_progress" if number == at else "pending")
            for number, text in enumerate(texts)
        )
    )


def _usage(prompt: str, answer: str, tools: int) -> Usage:
    """No model counted these: words stand in for tokens."""
    return Usage(len(prompt.split()), len(answer.split()), 0.0, tools + 1)
