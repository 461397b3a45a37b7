"""One tool call: parsed, approved by a person if needed, carried out, and logged."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.config.schema import PermissionMode
from codebutler.domain.clock import Clock
from codebutler.domain.errors import SandboxUnavailableError
from codebutler.text.envelopes import enveloped
from codebutler.text.wording import one_line
from codebutler_worker.agents.backend import AgentEvent, Approval, Plan, Question, Text, ToolUse
from codebutler_worker.agents.native.cleaning import BYTES_PER_TOKEN
from codebutler_worker.agents.native.model import TokenCount, ToolCall
from codebutler_worker.agents.native.sessions import PlannedRecord as PlanRecord
from codebutler_worker.agents.native.sessions import Record
from codebutler_worker.agents.running import Waits
from codebutler_worker.agents.session_logs import SessionLog
from codebutler_worker.tools.repair import definition, find_tool, parse_arguments
from codebutler_worker.tools.tool import (
    PLAN_TOOL,
    Arguments,
    AskPerson,
    CallDescription,
    Context,
    EndTurn,
    Kind,
    PlanChanged,
    PlanStep,
    ProposePlan,
    Result,
    SendFile,
    Tool,
    ToolError,
)

SUMMARY_CHARS = 150
AGREED = "The person approved the plan. Carry it out."
NO_ANSWER = "The person did not answer."

Ruling = Literal["allow", "ask", "refuse"]

PLANNING = (
    "Nothing is changed or run before the person has agreed to a plan: look around, then call propose_plan."
)
_ASKED: dict[PermissionMode, frozenset[Kind]] = {
    "bypassPermissions": frozenset(),
    "acceptEdits": frozenset(("command", "web")),
    "ask": frozenset(("edit", "command", "web")),
    "plan": frozenset(("web",)),
}
_REFUSED: frozenset[Kind] = frozenset(("edit", "command"))

ARGUMENT_CHARS = 2000
RESULT_CHARS = 2000


class CallDone(Struct, frozen=True):
    """The call is over. ``end``: so is the turn. ``duration_s`` is the tool's own time. ``valid``: a tool accepted the
    arguments, whatever the result."""

    use_id: str
    result: Result
    records: tuple[Record, ...] = ()
    end: EndTurn | None = None
    again: bool = False
    duration_s: float = 0.0
    valid: bool = True


class Acting:
    """The tools of one turn. ``mode`` may change when a person approves a plan."""

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

    async def events(
        self, call: ToolCall, plan: tuple[PlanStep, ...]
    ) -> AsyncGenerator[AgentEvent | CallDone]:
        """Any number of events, then one CallDone. Raises CutOffError and SandboxUnavailableError."""
        use_id = self._use_id(call)
        try:
            tool, args, note = self._understood(call)
        except ToolError as error:
            yield ToolUse(use_id, call.name, "")
            yield CallDone(use_id, Result(str(error), ok=False), valid=False)
            return
        described = tool.describe(args)
        summary = one_line(described.summary, SUMMARY_CHARS)
        yield ToolUse(use_id, tool.name, summary, described.input)
        verdict = ruling(self._mode, described.kind or tool.kind)
        if verdict == "refuse":
            yield CallDone(use_id, Result(PLANNING, ok=False))
            return
        if verdict == "ask":
            if use_id not in self._foreseen:
                self.waits.expect(use_id)
                yield Approval(use_id, described.tool, summary, described.input)
            answer = await self.waits.answered(use_id)
            if not answer.allow:
                why = f": {answer.text}" if answer.text else "."
                yield CallDone(use_id, Result(f"The person refused this call{why}", ok=False))
                return
        began_s = self.clock.monotonic()
        result = await self.waits.work(self._run(tool, args, plan))
        took_s = self.clock.monotonic() - began_s
        async for event in self._settle(use_id, described, result):
            yield _noted(replace(event, duration_s=took_s), note) if isinstance(event, CallDone) else event

    def named(self, said: str) -> str:
        """The proper name of the tool that is meant, if there is one; else the name as written."""
        return find_tool(said, self._tools) or said

    def foreseen(self, calls: Sequence[ToolCall]) -> list[Approval]:
        """All permissions needed for several calls, so that people can decide about them together."""
        found: list[Approval] = []
        for call in calls if len(calls) > 1 else ():
            try:
                tool, args, _ = self._understood(call)
            except ToolError:
                continue  # reported when its turn comes
            described = tool.describe(args)
            if ruling(self._mode, described.kind or tool.kind) == "ask":
                use_id = self._use_id(call)
                self._foreseen.add(use_id)
                self.waits.expect(use_id)
                summary = one_line(described.summary, SUMMARY_CHARS)
                found.append(Approval(use_id, described.tool, summary, described.input))
        return found

    def _use_id(self, call: ToolCall) -> str:
        """The id that people's answers refer to; a model's own ids may be anything."""
        return self._use_ids.setdefault(call.id, f"{self._context.turn_id}-{len(self._use_ids) + 1}")

    def _understood(self, call: ToolCall) -> tuple[Tool, Arguments, str]:
        """The tool that is meant, its arguments, and a note for the model. Raises ToolError."""
        name = find_tool(call.name, self._tools)
        if name is None:
            raise ToolError(f"there is no tool {call.name[:100]!r}: the tools are {', '.join(self._tools)}")
        return self._tools[name], *parse_arguments(self._tools[name], call.arguments)

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
        self, use_id: str, described: CallDescription, result: Result
    ) -> AsyncGenerator[AgentEvent | CallDone]:
        """Carry out the effect of a tool's result."""
        match result.effect:
            case AskPerson(text, options):
                self.waits.expect(use_id)
                yield Question(use_id, text, options)
                answer = await self.waits.answered(use_id)
                end = None if answer.allow else EndTurn(text, needs_user=True)
                told = answer.text if answer.allow else f"{NO_ANSWER} {answer.text}".strip()
                yield CallDone(use_id, replace(result, text=told), end=end)
            case ProposePlan(plan):
                self.waits.expect(use_id)
                yield Approval(use_id, PLAN_TOOL, "a plan", {"plan": plan})
                answer = await self.waits.answered(use_id)
                if answer.allow and self._mode == "plan":
                    self._mode = "ask"  # each of its actions needs approval
                told = (
                    AGREED if answer.allow else f"The person does not agree: {answer.text or 'keep planning'}"
                )
                yield CallDone(use_id, replace(result, text=told))
            case PlanChanged(steps):
                yield Plan(steps)
                yield CallDone(use_id, result, (PlanRecord(steps),))
            case SendFile(path):
                yield Text(enveloped(path, "file"))
                yield CallDone(use_id, result)
            case EndTurn() as end:
                yield CallDone(use_id, result, end=end)
            case None:
                yield CallDone(use_id, result, again=described.repeatable)


def _noted(done: CallDone, note: str) -> CallDone:
    if not note:
        return done
    return replace(done, result=replace(done.result, text=f"{done.result.text}\n{note}".lstrip("\n")))


def ruling(mode: PermissionMode, kind: Kind) -> Ruling:
    """Whether a call of that kind may run, needs permission, or is refused."""
    if mode == "plan" and kind in _REFUSED:
        return "refuse"
    return "ask" if kind in _ASKED[mode] else "allow"


class AgentLog:
    """Writes to the turn's session log. ``container_id`` names the sandbox if there is no container."""

    def __init__(self, log: SessionLog, clock: Clock, container_id: str) -> None:
        log.ending = ""
        self._log = log
        self._clock = clock
        self._container_id = container_id

    def asked(self, model: str, tokens: TokenCount, duration_s: float, calls: int) -> None:
        """The model answered."""
        self._write("model", model=model, duration_s=round(duration_s, 3), calls=calls, **_counts(tokens))

    def called(self, call: ToolCall, result: Result, duration_s: float) -> None:
        """A tool was called or refused."""
        self._write(
            "tool",
            tool=call.name,
            arguments=call.arguments[:ARGUMENT_CHARS],
            container_id=result.container or self._container_id,
            argv=list(result.argv),
            duration_s=round(duration_s, 3),
            exit_code=result.exit_code,
            truncated=result.truncated,
            ok=result.ok,
            result=result.text[:RESULT_CHARS],
        )

    def ended(self, stopped_reason: str, tokens: TokenCount, cost_usd: float | None, turns: int) -> None:
        """The turn is over."""
        self._write("end", stopped_reason=stopped_reason, cost_usd=cost_usd, turns=turns, **_counts(tokens))

    def noted(self, event: str, text: str) -> None:
        """Anything else that explains what happened."""
        self._write(event, text=text)

    def _write(self, event: str, **told: Any) -> None:
        stamp = self._clock.now().isoformat(timespec="milliseconds")
        entry = {"time": stamp, "event": event, "session": self._log.session, **told}
        self._log.write(msgspec.json.encode(entry) + b"\n")


def _counts(tokens: TokenCount) -> dict[str, int]:
    return {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cached_tokens": tokens.cached_input,
    }
