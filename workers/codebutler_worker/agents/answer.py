"""What an agent says: its answer, text in progress, and both without secrets. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from codebutler.text.disguised import CUT
from codebutler_worker.agents.backend import (
    AgentEvent,
    Approval,
    Finished,
    Plan,
    Question,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Writing,
)

# Which of an agent's words are its answer: all since the last tool that worked on something.
#
# An update of its plan or a question in between does not end it, and parts that the model's service cut at its length
# limit are joined.

MOST_CHARS = 2_000_000
"""Limits the memory for an agent's text."""
OVERLAP_CHARS = 400
FEWEST_SAME = 8
"""A repetition of this many characters is no accident: the model repeated the end of the part that was cut."""
STOPS_HERE = "_⚠️ The answer stops here: it reached the model's length limit. Reply `go on` for the rest._"

# Plans, questions and notes, as Claude Code 2.1, Kimi Code 2.1, OpenCode 1.18 and the built-in agent name their tools.
_ASIDE = frozenset(
    {
        "add_subgoal",
        "ask_user",
        "askuserquestion",
        "end_turn",
        "enterplanmode",
        "exitplanmode",
        "forget",
        "propose_plan",
        "question",
        "remember",
        "send_file",
        "taskcreate",
        "taskget",
        "tasklist",
        "taskupdate",
        "todolist",
        "todoread",
        "todowrite",
        "toolsearch",
        "update_plan",
        "update_subgoal",
    }
)


class AnswerText(Struct, frozen=True):
    """The answer so far. ``is_over``: a tool has worked since, so the next text starts a new answer. ``is_cut``: the
    service cut off its end."""

    prose: str = ""
    is_over: bool = False
    is_cut: bool = False

    @property
    def text(self) -> str:
        """All of it, for people."""
        text = self.prose.strip()
        return f"{text}\n\n{STOPS_HERE}" if text and self.is_cut else text

    def with_text(self, prose: str) -> AnswerText:
        """The answer with one more block of text."""
        if not prose.strip():
            return self
        if self.is_over or not self.prose:
            joined = prose
        elif self.is_cut:
            joined = self.prose + prose[_repeated(self.prose, prose) :]
        else:
            joined = f"{self.prose.rstrip()}\n\n{prose.lstrip()}"
        return AnswerText(joined[:MOST_CHARS])

    def cut(self) -> AnswerText:
        """The answer, after the service cut off its last text."""
        return self if self.is_over else replace(self, is_cut=True)

    def called(self, tool: str) -> AnswerText:
        """The answer after a tool call, given the tool's name."""
        return self if tool.lower() in _ASIDE else replace(self, is_over=True, is_cut=False)


def _repeated(before: str, after: str) -> int:
    """How many characters from the end of ``before`` the beginning of ``after`` repeats."""
    most = min(len(before), len(after), OVERLAP_CHARS)
    return next((size for size in range(most, FEWEST_SAME - 1, -1) if before.endswith(after[:size])), 0)


# Text that an agent sends in pieces: collected until it is complete, and shown now and then while it grows.

FEWEST_CHARS = 40
SHARE = 8
"""Shown again once it has grown by an eighth: all updates together are a few times its length, not its square."""


class Growing(Struct):
    """One block of text, up to ``most_chars``; the rest is left out."""

    most_chars: float = math.inf
    _parts: list[str] = field(default_factory=list)
    _chars: int = 0
    _shown_chars: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the block has arrived."""
        return not self._chars

    def add(self, text: str) -> list[Writing]:
        """Add a piece; returns the text so far if it is worth showing."""
        if self._chars >= self.most_chars:
            return []
        part = (
            text if self._chars + len(text) <= self.most_chars else text[: int(self.most_chars) - self._chars]
        )
        self._parts.append(part)
        self._chars += len(part)
        if self._chars - self._shown_chars < max(FEWEST_CHARS, self._shown_chars // SHARE):
            return []
        self._shown_chars = self._chars
        return [Writing("".join(self._parts))]

    def take(self) -> str:
        """All of it, unchanged; then it starts again empty."""
        text = "".join(self._parts)
        self._parts.clear()
        self._chars = self._shown_chars = 0
        return text


# What an agent says, without secrets. Redacted before the text is cut or split: half a key does not look like one.

Redact = Callable[[str], str]


def clean(event: AgentEvent, redact: Redact) -> AgentEvent:
    """The event with every text that people see passed through ``redact``. A request for permission stays as it is: the
    decision is about exactly that."""
    match event:
        case Text() | Thinking() | Refusal() | ToolResult() | Finished():
            return replace(event, text=redact(event.text))
        case Writing():
            # Its end may be the beginning of a key.
            return Writing(redact(f"{event.text}{CUT}"))
        case Started():
            return replace(event, model=redact(event.model))
        case ToolUse() | Approval():
            return replace(event, summary=redact(event.summary))
        case Plan():
            return Plan(tuple(replace(step, text=redact(step.text)) for step in event.steps))
        case Question():
            options = tuple(redact(option) for option in event.options)
            details = tuple(redact(detail) for detail in event.details)
            return replace(event, text=redact(event.text), options=options, details=details)
    return event


SUMMARY_CHARS = 120
RESULT_CHARS = 2000

# What distinguishes calls of the same tool, most specific first.
TELLING = (
    "file_path",
    "notebook_path",
    "path",
    "command",
    "pattern",
    "query",
    "url",
    "skill",
    "description",
    "prompt",
    "plan",
)


def arguments(value: Any) -> dict[str, Any]:
    """A tool's input as a mapping, whatever the model sent."""
    return value if isinstance(value, dict) else {}


def summarise(given: dict[str, Any], workdir: Path) -> str:
    """The file, command or pattern of a call; paths below ``workdir`` are shortened."""
    for key in TELLING:
        value = given.get(key)
        if isinstance(value, str) and value.strip():
            lines = value.strip().splitlines()
            text = lines[0].removeprefix(f"{workdir}/") + (" …" if len(lines) > 1 else "")
            return text if len(text) <= SUMMARY_CHARS else text[: SUMMARY_CHARS - 1] + "…"
    return ""


def result_text(content: Any) -> str:
    """A tool's result, shortened; content is a string or a list of blocks (Anthropic Messages API)."""
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str))
    text = content if isinstance(content, str) else ""
    return text if len(text) <= RESULT_CHARS else text[: RESULT_CHARS - 1] + "…"
