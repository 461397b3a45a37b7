"""One call of a tool: understood, perhaps asked leave for, done, and told."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec

from codebutler.config.schema import PermissionMode
from codebutler.domain.clock import Clock
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.agents.backend import AgentEvent, Approval, Plan, Question, Text, ToolUse
from codebutler_worker.agents.native.cleaning import BYTES_PER_TOKEN
from codebutler_worker.agents.native.history import Planned as PlanRecord
from codebutler_worker.agents.native.history import Record
from codebutler_worker.agents.native.journalist import AgentLog
from codebutler_worker.agents.native.model import Call
from codebutler_worker.agents.native.permissions import PLANNING, after_plan, ruling
from codebutler_worker.agents.native.waits import Waits
from codebutler_worker.tools.outcome import (
    PLAN_TOOL,
    AskPerson,
    EndTurn,
    PlanChanged,
    PlanStep,
    ProposePlan,
    Result,
    SendFile,
    ToolError,
)
from codebutler_worker.tools.port import Arguments, Context, Described, Tool
from codebutler_worker.tools.repair import definition, tool_named, understood

SUMMARY_CHARS = 150
AGREED = "The person agrees to the plan. Carry it out."
NO_ANSWER = "The person did not answer."


@dataclass(frozen=True, slots=True)
class Done:
    """The call is over. ``end``: and so is the turn. ``duration_s`` is the tool's own time. ``valid``: a tool
    understood it, whatever came of it."""

    use_id: str
    result: Result
    records: tuple[Record, ...] = ()
    end: EndTurn | None = None
    again: bool = False
    duration_s: float = 0.0
    valid: bool = True


class Acting:
    """The tools of one turn. ``mode`` may change when somebody agrees to a plan."""

    def __init__(
        self,
        tools: Iterable[Tool],
        context: Context,
        mode: PermissionMode,
        waits: Waits,
        log: AgentLog,
        clock: Clock,
    ) -> None:
        self.waits = waits
        self.log = log
        self.clock = clock
        self._tools = {tool.name: tool for tool in tools}
        self._context = context
        self._mode: PermissionMode = mode
        self._use_ids: dict[str, str] = {}
        self._foreseen: set[str] = set()
        self.definitions = tuple(definition(tool) for tool in self._tools.values())
        self.definition_tokens = int(len(msgspec.json.encode(self.definitions)) / BYTES_PER_TOKEN)

    async def events(self, call: Call, plan: tuple[PlanStep, ...]) -> AsyncGenerator[AgentEvent | Done]:
        """Any number of events, then one Done. Raises CutOffError and SandboxUnavailableError."""
        use_id = self._use_id(call)
        try:
            tool, args, note = self._understood(call)
        except ToolError as error:
            yield ToolUse(use_id, call.name, "")
            yield Done(use_id, Result(str(error), ok=False), valid=False)
            return
        described = tool.describe(args)
        summary = one_line(described.summary)
        yield ToolUse(use_id, tool.name, summary, described.input)
        verdict = ruling(self._mode, described.kind or tool.kind)
        if verdict == "refuse":
            yield Done(use_id, Result(PLANNING, ok=False))
            return
        if verdict == "ask":
            if use_id not in self._foreseen:
                self.waits.expect(use_id)
                yield Approval(use_id, described.tool, summary, described.input)
            answer = await self.waits.answered(use_id)
            if not answer.allow:
                why = f": {answer.text}" if answer.text else "."
                yield Done(use_id, Result(f"The person refused this call{why}", ok=False))
                return
        began_s = self.clock.monotonic()
        result = await self.waits.work(self._run(tool, args, plan))
        took_s = self.clock.monotonic() - began_s
        async for event in self._settle(use_id, described, result):
            yield _noted(replace(event, duration_s=took_s), note) if isinstance(event, Done) else event

    def named(self, said: str) -> str:
        """The tool that is meant by a name, if one is; else the name."""
        return tool_named(said, self._tools) or said

    async def foresee(self, calls: Sequence[Call]) -> AsyncGenerator[AgentEvent]:
        """Ask for leave for several calls at once: people decide about them together."""
        for call in calls if len(calls) > 1 else ():
            try:
                tool, args, _ = self._understood(call)
            except ToolError:
                continue  # told when its turn comes
            described = tool.describe(args)
            if ruling(self._mode, described.kind or tool.kind) == "ask":
                use_id = self._use_id(call)
                self._foreseen.add(use_id)
                self.waits.expect(use_id)
                yield Approval(use_id, described.tool, one_line(described.summary), described.input)

    def _use_id(self, call: Call) -> str:
        """What people and their answers know the call by; a model's own ids may be anything."""
        return self._use_ids.setdefault(call.id, f"{self._context.turn_id}-{len(self._use_ids) + 1}")

    def _understood(self, call: Call) -> tuple[Tool, Arguments, str]:
        """The tool that is meant, its arguments, and a note for the model. Raises ToolError."""
        name = tool_named(call.name, self._tools)
        if name is None:
            raise ToolError(f"there is no tool {call.name[:100]!r}: there are {', '.join(self._tools)}")
        return self._tools[name], *understood(self._tools[name], call.arguments)

    async def _run(self, tool: Tool, args: Arguments, plan: tuple[PlanStep, ...]) -> Result:
        programs = self._context.programs
        programs.container = ""
        try:
            result = await tool.run(replace(self._context, plan=plan), args)
        except SandboxUnavailableError:
            raise
        except ToolError as error:
            result = Result(str(error), ok=False)
        return replace(result, container=result.container or programs.container)

    async def _settle(
        self, use_id: str, described: Described, result: Result
    ) -> AsyncGenerator[AgentEvent | Done]:
        """Do what the tool leaves to us."""
        match result.effect:
            case AskPerson(text, options):
                self.waits.expect(use_id)
                yield Question(use_id, text, options)
                answer = await self.waits.answered(use_id)
                end = None if answer.allow else EndTurn(text, needs_user=True)
                told = answer.text if answer.allow else f"{NO_ANSWER} {answer.text}".strip()
                yield Done(use_id, replace(result, text=told), end=end)
            case ProposePlan(plan):
                self.waits.expect(use_id)
                yield Approval(use_id, PLAN_TOOL, "a plan", {"plan": plan})
                answer = await self.waits.answered(use_id)
                if answer.allow:
                    self._mode = after_plan(self._mode)
                told = (
                    AGREED if answer.allow else f"The person does not agree: {answer.text or 'keep planning'}"
                )
                yield Done(use_id, replace(result, text=told))
            case PlanChanged(steps):
                yield Plan(steps)
                yield Done(use_id, result, (PlanRecord(steps),))
            case SendFile(path):
                yield Text(f"<<<SLACK:file>>>{path}<<<END_SLACK>>>")
                yield Done(use_id, result)
            case EndTurn() as end:
                yield Done(use_id, result, end=end)
            case None:
                yield Done(use_id, result, again=described.again)


def _noted(done: Done, note: str) -> Done:
    if not note:
        return done
    return replace(done, result=replace(done.result, text=f"{done.result.text}\n{note}".lstrip("\n")))


def one_line(text: str) -> str:
    """The text on one line, cut where that is too long."""
    line = " ".join(text.split())
    return line if len(line) <= SUMMARY_CHARS else line[: SUMMARY_CHARS - 1] + "…"
