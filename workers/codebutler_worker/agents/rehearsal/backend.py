"""RehearsalBackend: an AgentBackend that needs no account, no key and no network."""

from __future__ import annotations

import re
import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import MappingProxyType
from uuid import uuid4

from msgspec import Struct, field

from codebutler_worker.agents.backend import (
    AgentEvent,
    Answer,
    Approval,
    Finished,
    Plan,
    Question,
    Reason,
    Started,
    Text,
    ToolResult,
    ToolUse,
    TurnRequest,
    Usage,
)
from codebutler_worker.agents.rehearsal import language
from codebutler_worker.agents.rehearsal.actions import Tools, carried_out, check
from codebutler_worker.agents.rehearsal.language import Intent, understand
from codebutler_worker.agents.running import AgentContext, TurnBackend, Waits
from codebutler_worker.agents.session_logs import SessionLog
from codebutler_worker.tools.tool import PlanStep, ToolError

SESSION = re.compile(r"rehearsal-[0-9a-f]{32}")
MAX_REMEMBERED = 20
HELP = Intent("Help")
REVIEW = (
    Intent("List"),
    Intent("Search", text="TODO"),
    Intent("Git", text="log"),
    Intent("Git", text="status"),
)
PACE_S = 2.0
"""Per step of a review: any faster, and nobody would see its plan."""


LEFT_ALONE = "You said no, so I left `{path}` alone."
NO_LANGUAGE = "You chose no language, so I wrote no `.gitignore`."
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        "Python": "__pycache__/\n*.pyc\n.venv/\ndist/",
        "Node": "node_modules/\ndist/\n*.log\n.env",
        "Go": "bin/\n*.test\n*.out",
        "Rust": "target/\n*.rs.bk",
    }
)


class _Work(Struct):
    """The progress and the answers of one turn. ``pace_s``: how long each step takes at least."""

    tools: Tools
    earlier: tuple[str, ...]
    pace_s: float
    ok: bool = True
    answers: list[str] = field(default_factory=list)

    def failed(self, why: str) -> None:
        """A step failed; the others are tried anyway."""
        self.ok = False
        self.answers.append(why)


class RehearsalBackend(TurnBackend[Waits]):
    """Recognizes plain sentences and works through the sandbox. ``home`` is the HOME its programs get; the sandbox
    shows nothing of it."""

    name = "rehearsal"

    def __init__(self, context: AgentContext, home: Path) -> None:
        super().__init__(context.clock, context.logs)
        self._sandbox = context.sandbox
        self._home = home
        self._said: dict[str, list[str]] = {}

    async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        waits = self._live[turn.turn_id] = Waits(self._clock, stopped=turn.turn_id in self._stopped)
        started = self._session(turn.session_id)
        yield started
        earlier = self._said.setdefault(started.session_id, [])
        introduce = not earlier and turn.session_id != started.session_id
        asked = understand(turn.prompt) or [HELP]
        steps = [step for intent in asked for step in (REVIEW if intent.verb == "Review" else (intent,))]
        tools = Tools(self._sandbox, turn.workdir, self._home, record.write, turn.conversation)
        work = _Work(tools, tuple(earlier), PACE_S if Intent("Review") in asked else 0.0)
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
        if introduce and work.ok and HELP not in asked:
            work.answers.append(language.INTRODUCTION)
        text = "\n\n".join(work.answers)
        usage = _usage(turn.prompt, text, len(steps))
        if work.ok:
            yield Text(text)
        yield usage
        reason: Reason = "done" if work.ok else "failed"
        yield Finished(ok=work.ok, text=text, reason=reason, usage=usage, total_cost_usd=0.0)

    def _session(self, wanted: str | None) -> Started:
        """The form of a session id shows that it is ours, so it survives a restart; its memory does not."""
        if wanted and SESSION.fullmatch(wanted):
            return Started(wanted)
        return Started(f"rehearsal-{uuid4().hex}", fresh=wanted is not None)

    async def _step(
        self, turn: TurnRequest, waits: Waits, work: _Work, intent: Intent
    ) -> AsyncGenerator[AgentEvent]:
        """Ask what must be asked, then carry it out."""
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
    """The steps, with the one at index ``at`` in progress."""
    texts = [language.step(*described(intent)) for intent in intents]
    return Plan(
        tuple(
            PlanStep(text, "done" if number < at else "in_progress" if number == at else "pending")
            for number, text in enumerate(texts)
        )
    )


def _usage(prompt: str, answer: str, tools: int) -> Usage:
    """No model counted these: words stand in for tokens."""
    return Usage(len(prompt.split()), len(answer.split()), 0.0, tools + 1)


def request_of(intent: Intent, request_id: str) -> Approval | Question | None:
    """What must be asked before ``intent`` is carried out; None for most."""
    match intent.verb:
        case "Delete":
            command = shlex.join(["rm", intent.path])
            return Approval(request_id, "Bash", command, {"command": command})
        case "Ignore":
            return Question(request_id, "Which language should the `.gitignore` be for?", tuple(PATTERNS))
    return None


def decided(intent: Intent, answer: Answer) -> Intent | str:
    """What to do after the answer, or what to say instead.

    Raises ToolError for an answer that makes no sense.
    """
    match intent.verb:
        case "Delete" if not answer.allow:
            reason = f" ({answer.text})" if answer.text else ""
            return LEFT_ALONE.format(path=intent.path) + reason
        case "Ignore":
            known = {name.lower(): text for name, text in PATTERNS.items()}
            chosen = answer.text.strip().lower() if answer.allow else ""
            if not chosen:
                return NO_LANGUAGE
            if chosen not in known:
                raise ToolError(
                    f"I do not know “{answer.text}”, only {', '.join(PATTERNS)}. I wrote no .gitignore."
                )
            return Intent("Append", ".gitignore", known[chosen])
    return intent


def described(intent: Intent) -> tuple[str, str]:
    """The tool's name and one line on what it does; an empty name if no tool is needed."""
    match intent:
        case Intent("List", path):
            return "List", path
        case Intent("Read" | "Attached", path):
            return "Read", path
        case Intent("Search", _, text):
            return "Search", text
        case Intent("Git", _, question):
            return "Git", f"git {question}"
        case Intent("Write" | "Append" | "Replace" | "Delete", path):
            return intent.verb, path
        case Intent("Ignore"):
            return "Write", ".gitignore"
        case Intent("Wait", _, seconds):
            return "Wait", f"{seconds} s"
        case _:
            return "", ""
