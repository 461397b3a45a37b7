"""What a running turn tells those who listen at its machine."""

from __future__ import annotations

import pytest

from codebutler_worker.agents.backend import (
    AgentEvent,
    Finished,
    Plan,
    Refusal,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    Writing,
)
from codebutler_worker.present.progress import MAX_CHARS, live
from codebutler_worker.tools.tool import PlanStep


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        (Text("Two\nlines."), "text", "Two\nlines."),
        (Text("x" * (MAX_CHARS + 9)), "text", "x" * MAX_CHARS),
        (Writing("Some of it\nand…"), "writing", "Some of it\nand"),
        (Writing("Hello\n<<<SLACK:done>>> not prose"), "writing", "Hello\n"),
        (ToolUse("1", "Bash", "ls\n-l"), "tool", "🔧 Bash: ls -l"),
        (ToolUse("1", "Think", ""), "tool", "🔧 Think"),
        (ToolResult("1", False, "no such\nfile"), "tool", "❌ no such file"),
        (Plan((PlanStep("read", "done"), PlanStep("write", "pending"))), "plan", "✓ read\n· write"),
        (Refusal("try again"), "note", "⏳ try again"),
    ],
)
def test_what_listeners_hear(event: AgentEvent, kind: str, text: str) -> None:
    told = live(event, "1.0")
    assert told is not None
    assert (told.kind, told.text, told.thread) == (kind, text, "1.0")


@pytest.mark.parametrize(
    "event",
    [
        Started("s"),
        Thinking("hm"),
        Text("  \n"),
        Plan(()),
        ToolResult("1", True, "fine"),
        Usage(),
        Finished(ok=True, text="all", reason="done"),
    ],
)
def test_what_they_do_not(event: AgentEvent) -> None:
    assert live(event, "1.0") is None
