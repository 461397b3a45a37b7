"""The protocol's updates -> AgentEvents. Pure: a Translator is one turn's memory, and does no I/O."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    ContentToolCallContent,
    FileEditToolCallContent,
    RequestPermissionRequest,
    SessionNotification,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UsageUpdate,
)
from msgspec import Struct, field

from codebutler_worker.agents.answer import SUMMARY_CHARS, AnswerText, Growing, result_text, summarise
from codebutler_worker.agents.backend import (
    AgentEvent,
    Approval,
    Plan,
    Question,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from codebutler_worker.tools.tool import PLAN_TOOL, PlanStep

_NAME = re.compile(r"[A-Za-z][\w.:-]{0,40}")
_OVER = ("completed", "failed")
# Limits the memory for an agent's text.
MOST_CHARS = 2_000_000
MOST_CALLS = 1_000
_STATES: dict[str, Any] = {"pending": "pending", "in_progress": "in_progress", "completed": "done"}
Call = ToolCallStart | ToolCallProgress | ToolCallUpdate


class Running(Struct):
    """What is known of one call so far; ``told``: people have seen that it runs."""

    title: str
    kind: str
    given: dict[str, Any] = field(default_factory=dict)
    told: bool = False


class AcpTranslator:
    """One turn of one session.

    ``answer`` is its text for people, ``worked`` whether it did or said anything at all, ``cost_usd`` the session's
    cost so far, if the agent reports it.
    """

    def __init__(self, workdir: Path) -> None:
        self.answer = AnswerText()
        self.worked = False
        self.cost_usd: float | None = None
        self._workdir = workdir
        self._calls: dict[str, Running] = {}
        self._text = Growing(MOST_CHARS)
        self._thought = Growing(MOST_CHARS)
        self._message: str | None = None

    @property
    def busy(self) -> bool:
        """Whether a tool is running, during which the agent is silent."""
        return bool(self._calls)

    def feed(self, heard: SessionNotification) -> list[AgentEvent]:
        """The events for an update."""
        match heard.update:
            case AgentMessageChunk() as chunk:
                return self._said(chunk)
            case AgentThoughtChunk() as chunk:
                self.worked = True
                begins = bool(text := _prose(chunk)) and self._thought.is_empty
                self._thought.add(text)
                return [Thinking("")] if begins else []
            case ToolCallStart() | ToolCallProgress() as call:
                return self._called(call)
            case AgentPlanUpdate(entries=entries):
                steps = tuple(PlanStep(entry.content, _STATES[entry.status]) for entry in entries)
                return [*self.flush(), Plan(steps)]
            case UsageUpdate(cost=cost):
                if cost is not None and cost.currency.upper() == "USD":
                    self.cost_usd = cost.amount
                return []
            case _:
                return []

    def asked(self, request_id: str, request: RequestPermissionRequest) -> list[AgentEvent]:
        """A request for permission, or a choice: several ways to say yes make it a question."""
        call = request.tool_call
        is_new = call.tool_call_id not in self._calls
        known = self._calls.setdefault(call.tool_call_id, Running(call.title or "a tool", "other"))
        self._learn(known, call)
        events = self.flush()
        if is_new:
            self.answer = self.answer.called(known.title)
        events += self._tell(call.tool_call_id, known)
        said = texts_of(call)
        if is_choice(request):
            options = tuple(option.name for option in request.options if option.kind == "allow_once")
            return [*events, Question(request_id, said or call.title or known.title, options)]
        name = self._name(known)
        given = known.given or {"request": said or call.title or known.title, **diffs_of(call)}
        if name == PLAN_TOOL:
            given = {"plan": said}
        return [*events, Approval(request_id, name, self._summary(known), given)]

    def flush(self) -> list[AgentEvent]:
        """Its text and thoughts as finished blocks."""
        events: list[AgentEvent] = []
        thought, text = self._thought.take(), self._text.take()
        if thought.strip():
            events.append(Thinking(thought.strip()))
        if text.strip():
            self.answer = self.answer.with_text(text)
            events.append(Text(text.strip()))
        return events

    def _said(self, chunk: AgentMessageChunk) -> list[AgentEvent]:
        self.worked = True
        events = self._untold()
        if chunk.message_id != self._message:
            events += self.flush()
        self._message = chunk.message_id
        return [*events, *self._text.add(_prose(chunk))]

    def _called(self, call: ToolCallStart | ToolCallProgress) -> list[AgentEvent]:
        self.worked = True
        known = self._calls.get(call.tool_call_id)
        events: list[AgentEvent] = []
        if known is None:
            stray = call.status in _OVER and not isinstance(call, ToolCallStart)
            if stray or len(self._calls) >= MOST_CALLS:
                return []
            events += [*self.flush(), *self._untold()]
            known = self._calls[call.tool_call_id] = Running(call.title or "a tool", call.kind or "other")
            self.answer = self.answer.called(known.title)
        self._learn(known, call)
        # OpenCode 1.18 first sends only a call's working directory, Kimi Code 2.1 only its name.
        if summarise(known.given, self._workdir) or call.status in _OVER:
            events += self._tell(call.tool_call_id, known)
        if call.status in _OVER:
            del self._calls[call.tool_call_id]
            text = texts_of(call) or (call.raw_output if isinstance(call.raw_output, str) else "")
            events.append(ToolResult(call.tool_call_id, call.status == "completed", result_text(text)))
        return events

    def _learn(self, known: Running, call: Call) -> None:
        known.kind = call.kind or known.kind
        if isinstance(call.raw_input, dict):
            known.given = call.raw_input
        elif not known.told and (given := arguments_in(texts_of(call))):
            # Kimi Code 2.1.0 asks for permission before it sends the input, but has sent it as text by then.
            known.given = given

    def _untold(self) -> list[AgentEvent]:
        """The calls that start without a further message."""
        return [event for key, known in self._calls.items() for event in self._tell(key, known)]

    def _tell(self, call_id: str, known: Running) -> list[AgentEvent]:
        if known.told:
            return []
        known.told = True
        return [ToolUse(call_id, self._name(known), self._summary(known), known.given)]

    def _name(self, known: Running) -> str:
        return known.title if _NAME.fullmatch(known.title) else known.kind.replace("_", " ").capitalize()

    def _summary(self, known: Running) -> str:
        """One line about its input, or else its title."""
        titled = "" if _NAME.fullmatch(known.title) else " ".join(known.title.split())[:SUMMARY_CHARS]
        return summarise(known.given, self._workdir) or titled


def _prose(chunk: AgentMessageChunk | AgentThoughtChunk) -> str:
    """The text of a chunk; "" if it is not text."""
    return chunk.content.text if isinstance(chunk.content, TextContentBlock) else ""


def over_in(heard: SessionNotification) -> str:
    """The id of the call that ended, "" if none did."""
    update = heard.update
    ended = isinstance(update, ToolCallStart | ToolCallProgress) and update.status in _OVER
    return update.tool_call_id if ended else ""


def is_choice(request: RequestPermissionRequest) -> bool:
    """Whether it asks for more than yes or no: there are several ways to say yes once."""
    return sum(option.kind == "allow_once" for option in request.options) > 1


def option_for(request: RequestPermissionRequest, *, allow: bool, text: str = "") -> str | None:
    """The option that says it; None if there is none, which cancels.

    Never one that the agent would remember: we store lasting permissions ourselves, each for one exact call.
    """
    options = request.options
    if is_choice(request):
        named = [
            option.option_id for option in options if option.name == text and option.kind == "allow_once"
        ]
        if allow and named:
            return named[0]
        allow = False
    kinds = ("allow_once",) if allow else ("reject_once", "reject_always")
    return next((option.option_id for kind in kinds for option in options if option.kind == kind), None)


def texts_of(call: Call) -> str:
    """The text in a call's content."""
    parts = [
        part.content.text
        for part in call.content or []
        if isinstance(part, ContentToolCallContent) and isinstance(part.content, TextContentBlock)
    ]
    return "\n".join(part for part in parts if part)


def diffs_of(call: Call) -> dict[str, Any]:
    """The diffs in a call's content."""
    diffs = [part for part in call.content or [] if isinstance(part, FileEditToolCallContent)]
    shown = [{"path": diff.path, "old": diff.old_text or "", "new": diff.new_text} for diff in diffs]
    return {"changes": shown} if shown else {}


def arguments_in(text: str) -> dict[str, Any]:
    """The JSON object in a text, {} if it is not one."""
    if not text.startswith("{"):
        return {}
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}
