"""Claude Code's lines -> AgentEvents. Pure: a Translator is one turn's memory, and does no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from codebutler_worker.agents.answer import AnswerText, Growing, arguments, result_text, summarise
from codebutler_worker.agents.backend import (
    AgentEvent,
    Approval,
    Question,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Verdict,
    Withdrawn,
)
from codebutler_worker.agents.claude.plan import PlanKeeper, TaskList
from codebutler_worker.agents.claude.schema import (
    AssistantLine,
    Block,
    CommandLifecycle,
    ControlCancel,
    ControlReply,
    ControlRequest,
    ControlResponse,
    Line,
    Meter,
    RateLimitLine,
    ResultLine,
    StreamEvent,
    StreamPart,
    SystemLine,
    UserLine,
    judge,
)
from codebutler_worker.tools.tool import PLAN_TOOL

INITIALIZE = "initialize"
COST = "cost"
ASK_PERSON = "AskUserQuestion"
SHELL = "local_bash"
MOST_CHARS = 2_000_000
COMPACTED = "Compacted: the session continues with a summary of what was said."
CUT = "max_tokens"
TOO_LONG = "output token maximum"
"""Claude Code 2.1.328's message after it has continued a cut answer three times."""
THOUGHTS = ("thinking", "redacted_thinking")


@dataclass(eq=False, repr=False)
class ClaudeTranslator:
    """One turn of one session, as the CLI reports it.

    ``session_id`` is the one we started it with: a tool can write to the CLI's stdout, so an id from there is not
    trusted as an argument.

    ``meter`` knows the session's cost before this turn. ``fresh`` marks the Started event of a session that replaces a
    lost one. ``is_initialized``: whether the CLI has named its commands (``offered``), which it does before it can run
    anything. ``sent``: messages that we sent; the turn is not over before the CLI has started on them.
    """

    workdir: Path
    meter: Meter = field(default_factory=Meter)
    session_id: str = field(default="", kw_only=True)
    fresh: bool = field(default=False, kw_only=True)
    running: set[str] = field(default_factory=set, init=False)
    asking: dict[str, ControlRequest] = field(default_factory=dict, init=False)
    tasks: dict[str, str] = field(default_factory=dict, init=False)
    result: ResultLine | None = field(default=None, init=False)
    refused: str = field(default="", init=False)
    is_initialized: bool = field(default=False, init=False)
    offered: Any = field(default=None, init=False)
    worked: bool = field(default=False, init=False)
    answer: AnswerText = field(default=AnswerText(), init=False)
    sent: set[str] = field(default_factory=set, init=False)
    _started: bool = field(default=False, init=False)
    _follows_messages: bool = field(default=False, init=False)
    _continuing: bool = field(default=False, init=False)
    _api_error: str | None = field(default=None, init=False)
    _command: str = field(default="", init=False)
    """What a command that the CLI ran itself has said; its result may be empty."""
    resets_at_s: float | None = field(default=None, init=False)
    """When the usage limit ends that it has met."""
    _tasks: TaskList = field(default_factory=TaskList, init=False)
    _plans: PlanKeeper = field(default_factory=PlanKeeper, init=False)
    _prose: Growing = field(default_factory=partial(Growing, MOST_CHARS), init=False)

    @property
    def settled(self) -> bool:
        """The last message has been sent, and nothing is left that could add to it."""
        queued = self._follows_messages and bool(self.sent)
        return self.result is not None and not queued and not self.tasks and not self._continuing

    def feed(self, line: Line | None) -> list[AgentEvent]:
        """The events of one line; None is a line that was not understood."""
        match line:
            case SystemLine():
                return self._system(line)
            case AssistantLine():
                return self._assistant(line)
            case UserLine(message=message):
                blocks = message.content if isinstance(message.content, list) else []
                return [event for block in blocks for event in self._tool_result(block)]
            case ResultLine():
                self.result = line
                self._continuing = False
                self.running.clear()
                self.asking.clear()
                self.meter.settle(line)
                return [self.meter.usage]
            case ControlRequest():
                return self._request(line)
            case ControlCancel():
                return self._withdrawn([line.request_id])
            case ControlResponse():
                return self._replied(line.response)
            case StreamEvent():
                return self._grown(line.event, inner=line.parent_tool_use_id is not None)
            case CommandLifecycle() | RateLimitLine():
                return self._noted(line)
        return []

    def _noted(self, line: CommandLifecycle | RateLimitLine) -> list[AgentEvent]:
        if isinstance(line, CommandLifecycle):
            self._follows_messages = True
            if line.state != "queued":
                self.sent.discard(line.command_uuid)
        elif line.rate_limit_info.status == "rejected":
            self.resets_at_s = line.rate_limit_info.resetsAt
            which = (line.rate_limit_info.rateLimitType or "usage").replace("_", "-")
            return [Refusal(f"The subscription's {which} limit is reached")]
        return []

    def verdict(self) -> Verdict | None:
        """What the last result means; None before there is one. The result itself contains only the last block of the
        answer."""
        if self.result is None:
            return None
        verdict = judge(self.result, self._api_error, resets=self.resets_at_s is not None)
        if verdict == Verdict("done", "") and self._command:
            return Verdict("failed" if self._command.startswith("Error") else "done", self._command)
        if verdict.reason == "done" and verdict.text.strip() in self.answer.prose:
            return Verdict("done", self.answer.text)
        if verdict.reason == "failed" and self.answer.is_cut and TOO_LONG in verdict.text:
            # The CLI gives up after three more parts; the text so far is still useful.
            return Verdict("done", self.answer.text)
        return verdict

    def _grown(self, part: StreamPart, *, inner: bool) -> list[AgentEvent]:
        """A block of the answer, while it is being written; or the figures at its end."""
        if part.delta.stop_reason == CUT and not inner:
            self.answer = self.answer.cut()
        if self.meter.streamed(part, inner=inner):
            return [self.meter.usage]
        if inner:
            return []
        if part.type == "content_block_delta" and part.delta.text:
            return [*self._prose.add(part.delta.text)]
        if part.type == "content_block_start":
            self._prose.take()
            if part.content_block.type in THOUGHTS:
                return [Thinking("")]
        return []

    def _replied(self, reply: ControlReply) -> list[AgentEvent]:
        if reply.request_id == INITIALIZE:
            if reply.subtype == "error":
                self.refused = reply.error or "initialize was refused"
            elif not self.is_initialized:
                self.is_initialized, self.offered = True, reply.response
        elif reply.request_id == COST:
            text = reply.response.get("text") if isinstance(reply.response, dict) else None
            return [self.meter.usage] if self.meter.priced(text if isinstance(text, str) else None) else []
        return []

    def _system(self, line: SystemLine) -> list[AgentEvent]:
        match line.subtype:
            case "init":
                self.result = None
                self._continuing = False
                if self._started:
                    return []
                self._started = True
                self.session_id = self.session_id or line.session_id
                return [Started(self.session_id, self.fresh, line.model)]
            case "compact_boundary":
                self._command = COMPACTED
            case "api_retry":
                what = f"answered {line.error_status}" if line.error_status else "did not answer"
                wait_s = line.retry_delay_ms / 1000
                tries = f"{line.attempt} of {line.max_retries}"
                return [Refusal(f"The model service {what}: retry {tries} in {wait_s:.0f} s")]
            case "background_tasks_changed":
                self._background({task.task_id: task.task_type for task in line.tasks})
            case "task_started" if line.is_backgrounded:
                self._background(self.tasks | {line.task_id: line.task_type})
            case "task_notification":
                self._background({id_: kind for id_, kind in self.tasks.items() if id_ != line.task_id})
        return []

    def _background(self, tasks: dict[str, str]) -> None:
        # After the last task, the CLI informs the model by itself, in one more internal turn.
        if self.tasks and not tasks and self.result is not None:
            self._continuing = True
        self.tasks = tasks

    def _assistant(self, line: AssistantLine) -> list[AgentEvent]:
        if line.error is not None or line.message.model == "<synthetic>":
            # This comes from the CLI, not the model: an API error or the output of a local command.
            self._api_error = line.error or self._api_error
            self._command = "".join(block.text for block in line.message.content if block.type == "text")
            return []
        self.worked = True
        inner, events = line.parent_tool_use_id is not None, list[AgentEvent]()
        for block in line.message.content:
            match block.type:
                case "text" if block.text.strip() and not inner:
                    self.answer = self.answer.with_text(block.text)
                    events.append(Text(block.text))
                case "thinking" if block.thinking.strip() and not inner:
                    events.append(Thinking(block.thinking))
                case "tool_use":
                    events += self._called(block, inner=inner)
        return events

    def _called(self, block: Block, *, inner: bool) -> list[AgentEvent]:
        given = arguments(block.input)
        self._plans.saw(block.id, block.name, given)
        if not inner:
            self.running.add(block.id)
            self.answer = self.answer.called(block.name)
            if self._tasks.called(block.id, block.name, given):
                return []
        return [ToolUse(block.id, block.name, summarise(given, self.workdir), given)]

    def _tool_result(self, block: Block) -> list[AgentEvent]:
        if block.type != "tool_result":
            return []
        self.running.discard(block.tool_use_id)
        answered = [k for k, ask in self.asking.items() if ask.request.tool_use_id == block.tool_use_id]
        gone = self._withdrawn(answered)
        result = ToolResult(block.tool_use_id, not block.is_error, result_text(block.content))
        if self._tasks.is_own(result.id):
            plan = self._tasks.answered(result.id, result.ok, result.text)
            return [*gone, plan] if plan else gone
        return [*gone, result]

    def _withdrawn(self, request_ids: list[str]) -> list[AgentEvent]:
        """It no longer waits for these; answered requests are not pending any more."""
        return [Withdrawn(id_) for id_ in request_ids if self.asking.pop(id_, None) is not None]

    def _request(self, line: ControlRequest) -> list[AgentEvent]:
        if line.request.subtype != "can_use_tool" or line.request_id in self.asking:
            # Ignore a second request with the same id: what people allow is what runs.
            return []
        self.asking[line.request_id] = line
        given = line.request.input
        if line.request.tool_name == ASK_PERSON and (asked := questions(given)):
            return [
                question_of(line.request_id, number, each, len(asked)) for number, each in enumerate(asked)
            ]
        if line.request.tool_name == PLAN_TOOL:
            given = self._plans.shown(line.request.tool_use_id, given)
        summary = summarise(given, self.workdir)
        return [Approval(line.request_id, line.request.tool_name, summary, given)]


def questions(given: dict[str, Any]) -> list[dict[str, Any]]:
    """The questions of one AskUserQuestion call (one to four); answers are keyed by text, so each text appears only
    once."""
    found = given.get("questions")
    asked = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    by_text: dict[str, dict[str, Any]] = {}
    for each in asked:
        by_text.setdefault(str(each.get("question", "")), each)
    return list(by_text.values())


def question_of(request_id: str, number: int, asked: dict[str, Any], of: int) -> Question:
    """One question of a series as an event; its id is ``<request>#<number>``."""
    found = asked.get("options")
    options = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return Question(
        f"{request_id}#{number}",
        str(asked.get("question", "")),
        tuple(str(option.get("label", "")) for option in options),
        tuple(str(option.get("description") or "") for option in options),
        several=asked.get("multiSelect") is True,
        of=of,
    )
