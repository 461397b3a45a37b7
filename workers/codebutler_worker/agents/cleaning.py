"""What an agent says, without secrets, before any of it is cut or split: half a key does not look like one. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from codebutler.text.begun import CUT
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

Redact = Callable[[str], str]


def clean(event: AgentEvent, redact: Redact) -> AgentEvent:
    """The event with every text that people see passed through ``redact``. What is asked leave for stays as it is: the
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
