"""RehearsalBackend: an AgentBackend that needs no account, no key and no network."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from codebutler_worker.agents.backend import (
    STOPPED,
    AgentEvent,
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
from codebutler_worker.agents.rehearsal.actions import (
    ToolError,
    Tools,
    carried_out,
    check,
    decided,
    described,
    request_of,
    steps_of,
)
from codebutler_worker.agents.rehearsal.intents import Help, Intent, Review, understand
from codebutler_worker.agents.running import AgentContext, CutOffError, TurnBackend, Waits
from codebutler_worker.tools.plan import PlanStep

SESSION = re.compile(r"rehearsal-[0-9a-f]{32}")
MAX_REMEMBERED = 20
PACE_S = 2.0
"""For each step of a review: less, and nobody sees its plan."""


@dataclass
class _Work:
    """What one turn does and has to say. ``pace_s``: how long each step takes at least."""

    tools: Tools
    earlier: tuple[str, ...]
    pace_s: float
    ok: bool = True
    answers: list[str] = field(default_factory=list)

    def failed(self, why: str) -> None:
        """A step did not work; the others are tried all the same."""
        self.ok = False
        self.answers.append(why)


class RehearsalBackend(TurnBackend[Waits]):
    """Recognises plain sentences and works through the sandbox. ``home`` is the HOME its programs get, of which the
    sandbox shows nothing."""

    name = "rehearsal"

    def __init__(self, context: AgentContext, home: Path) -> None:
        super().__init__(context.clock, context.logs)
        self._sandbox = context.sandbox
        self._home = home
        self._said: dict[str, list[str]] = {}

    async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        waits = Waits(self._clock)
        if self._unwanted(turn.turn_id):
            waits.stopping.set()
        self._live[turn.turn_id] = waits
        try:
            async with aclosing(self._rehearse(turn, waits, record)) as events:
                async for event in events:
                    yield event
        except CutOffError:
            yield Finished(ok=False, text=STOPPED.text, reason=STOPPED.reason)

    def _session(self, wanted: str | None) -> Started:
        """A session id says by its form that it is ours, so one survives a restart; its memory does not."""
        if wanted and SESSION.fullmatch(wanted):
            return Started(wanted)
        return Started(f"rehearsal-{uuid4().hex}", fresh=wanted is not None)

    async def _rehearse(
        self, turn: TurnRequest, waits: Waits, record: SessionLog
    ) -> AsyncGenerator[AgentEvent]:
        started = self._session(turn.session_id)
        yield started
        earlier = self._said.setdefault(started.session_id, [])
        introduce = not earlier and turn.session_id != started.session_id
        asked = understand(turn.prompt) or [Help()]
        steps = steps_of(asked)
        tools = Tools(self._sandbox, turn.workdir, self._home, record.write, turn.conversation)
        work = _Work(tools, tuple(earlier), PACE_S if Review() in asked else 0.0)
        for number, intent in enumerate(steps):
            if len(steps) > 1:
                yield _plan(steps, number)
            async with aclosing(self._step(turn, waits, work, intent)) as events:
                async for event in events:
                    yield event
        if len(steps) > 1:
            yield _plan(steps, len(steps))
        earlier.append(turn.prompt)
        del earlier[:-MAX_REMEMBERED]
        if introduce and work.ok and Help() not in asked:
            work.answers.append(wording.INTRODUCTION)
        text = "\n\n".join(work.answers)
        usage = _usage(turn.prompt, text, len(steps))
        if work.ok:
            yield Text(text)
        yield usage
        reason: Reason = "done" if work.ok else "failed"
        yield Finished(ok=work.ok, text=text, reason=reason, usage=usage, total_cost_usd=0.0)

    async def _step(
        self, turn: TurnRequest, waits: Waits, work: _Work, intent: Intent
    ) -> AsyncGenerator[AgentEvent]:
        """Ask for what has to be asked, and do it."""
        call_id = f"{turn.turn_id}-{len(work.answers) + 1}"
        todo: Intent | str = intent
        try:
            check(intent, work.tools)
            if (question := request_of(intent, call_id)) is not None:
                waits.expect(question.id)
                yield question
                todo = decided(intent, await waits.answered(question.id))
        except ToolError as error:
            work.failed(str(error))
            return
        if isinstance(todo, str):
            work.answers.append(todo)
            return
        name, summary = described(todo)
        if name:
            yield ToolUse(call_id, name, summary)
        await waits.work(self._clock.sleep(work.pace_s))
        try:
            work.answers.append(await waits.work(carried_out(todo, work.tools, work.earlier)))
        except ToolError as error:
            work.failed(str(error))
        if name:
            yield ToolResult(call_id, work.ok, work.answers[-1])


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
