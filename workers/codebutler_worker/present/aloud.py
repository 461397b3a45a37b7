"""What a running turn tells those who listen at its machine, as it comes: more, and sooner, than a chat takes. Pure."""

from __future__ import annotations

from codebutler.protocol.messages import Live
from codebutler_worker.agents.backend import AgentEvent, Limit, Plan, Text, ToolResult, ToolUse, Writing
from codebutler_worker.present.lines import one_line
from codebutler_worker.present.progress import BOXES
from codebutler_worker.present.writing import prose

MAX_CHARS = 200_000
TOOL_CHARS = 200


def aloud(event: AgentEvent, thread_ts: str) -> Live | None:
    """The event for listeners to the thread; None for what they do not need."""
    match event:
        case Text(text=text) if text.strip():
            return Live(thread_ts=thread_ts, kind="text", text=text[:MAX_CHARS])
        case Writing(text=text) if text.strip():
            return Live(thread_ts=thread_ts, kind="writing", text=prose(text)[:MAX_CHARS])
        case ToolUse(name=name, summary=summary):
            label = f"{name}: {summary}" if summary else name
            return Live(thread_ts=thread_ts, kind="tool", text=f"🔧 {one_line(label, TOOL_CHARS)}")
        case ToolResult(ok=False, text=text):
            return Live(thread_ts=thread_ts, kind="tool", text=f"❌ {one_line(text, TOOL_CHARS)}")
        case Plan(steps=steps):
            lines = [f"{BOXES[step.state]} {one_line(step.text, TOOL_CHARS)}" for step in steps]
            return Live(thread_ts=thread_ts, kind="plan", text="\n".join(lines)) if lines else None
        case Limit(text=text):
            return Live(thread_ts=thread_ts, kind="note", text=f"⏳ {one_line(text, TOOL_CHARS)}")
    return None
