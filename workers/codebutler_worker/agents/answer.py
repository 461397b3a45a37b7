"""What an agent says: its answer, the prose that grows, and all of it without secrets. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codebutler.text.disguised import CUT
from codebutler_worker.agents.backend import (
    AgentEvent,
    Approval,
    Finished,
    Limit,
    Plan,
    Question,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Writing,
)

# What of an agent's words is its answer: all it said since the last tool that worked on something.
#
# An update of its plan or a question in between cuts nothing off, and parts that the model's service cut at its length
# limit are one text again.

MOST_CHARS = 2_000_000
"""What an agent says is not kept without bounds."""
OVERLAP_CHARS = 400
FEWEST_SAME = 8
"""So many characters at a seam are no accident: the model repeated the end of what was cut."""
STOPS_HERE = "_⚠️ The answer stops here: it reached the model's length limit. Reply `go on` for the rest._"

# Plans, questions and notes, as Claude Code 2.1, Kimi Code 2.1, OpenCode 1.18 and our own agent call their tools.
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


@dataclass(frozen=True, slots=True)
class AnswerText:
    """The answer so far. ``is_over``: a tool worked since, so what is said next begins it anew. ``is_cut``: the service
    cut off its end."""

    prose: str = ""
    is_over: bool = False
    is_cut: bool = False

    @property
    def text(self) -> str:
        """All of it, for people."""
        text = self.prose.strip()
        return f"{text}\n\n{STOPS_HERE}" if text and self.is_cut else text

    def said(self, prose: str) -> AnswerText:
        """With one more block of prose."""
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
        """The service cut off what was said last."""
        return self if self.is_over else replace(self, is_cut=True)

    def called(self, tool: str) -> AnswerText:
        """After a call of a tool, by its name."""
        return self if tool.lower() in _ASIDE else replace(self, is_over=True, is_cut=False)


def _repeated(before: str, after: str) -> int:
    """How many characters of the end of ``before`` the beginning of ``after`` says once more."""
    most = min(len(before), len(after), OVERLAP_CHARS)
    return next((size for size in range(most, FEWEST_SAME - 1, -1) if before.endswith(after[:size])), 0)


# Prose that an agent says in pieces: kept until it is whole, and told now and then while it grows.

FEWEST_CHARS = 40
SHARE = 8
"""It is told again once it has grown by an eighth: all the telling together is a few times its length, not its
square."""


class Growing:
    """One block of prose, up to ``most_chars``; what comes beyond is left out."""

    def __init__(self, most_chars: float = math.inf) -> None:
        self._most_chars = most_chars
        self._parts: list[str] = []
        self._chars = 0
        self._told = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the block has come."""
        return not self._chars

    def add(self, text: str) -> list[Writing]:
        """One more piece; what there is so far, if that is worth telling."""
        if self._chars >= self._most_chars:
            return []
        part = (
            text
            if self._chars + len(text) <= self._most_chars
            else text[: int(self._most_chars) - self._chars]
        )
        self._parts.append(part)
        self._chars += len(part)
        if self._chars - self._told < max(FEWEST_CHARS, self._told // SHARE):
            return []
        self._told = self._chars
        return [Writing("".join(self._parts))]

    def take(self) -> str:
        """All of it, as it came; then it begins anew."""
        text = "".join(self._parts)
        self._parts.clear()
        self._chars = self._told = 0
        return text


# What an agent says, without secrets, before any of it is cut or split: half a key does not look like one.

Redact = Callable[[str], str]


def clean(event: AgentEvent, redact: Redact) -> AgentEvent:
    """The event with every text that people see passed through ``redact``. What needs permission stays as it is: the
    decision is about exactly that."""
    match event:
        case Text() | Thinking() | Limit() | ToolResult() | Finished():
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

# What tells a call from another of the same tool, most telling first.
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
    """A tool's input as a mapping, whatever the model made of it."""
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
    """What a tool answered, shortened; content is a string or a list of blocks (Anthropic Messages API)."""
    if isinstance(content, list):
        parts = [part.get("text", "") for part in content if isinstance(part, dict)]
        content = "\n".join(part for part in parts if isinstance(part, str))
    text = content if isinstance(content, str) else ""
    return text if len(text) <= RESULT_CHARS else text[: RESULT_CHARS - 1] + "…"
