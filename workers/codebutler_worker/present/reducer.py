"""AgentEvent to what the progress message shows. Pure: no clock, no Slack, no store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from codebutler_worker.agents.backend import (
    AgentEvent,
    Limit,
    Plan,
    Started,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    Writing,
)
from codebutler_worker.present.writing import latest
from codebutler_worker.tools.plan import PlanStep


@dataclass(frozen=True, slots=True)
class View:
    """What is known of a running turn. ``last_tool`` outlives its result: recovery and people ask for it.
    ``model`` answers it, as far as the agent tells. ``said`` is its latest text, ``writing`` the latest of what it is
    writing just now, ``thinks``: it does neither, nor acts. ``waits``: for this of a person ("approval", "answer"), ""
    if it waits for nobody."""

    activity: str = ""
    is_tool: bool = False
    last_tool: str = ""
    tools: int = 0
    failed_tools: int = 0
    plan: tuple[PlanStep, ...] = ()
    note: str = ""
    said: str = ""
    writing: str = ""
    thinks: bool = False
    waits: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""


def reduce(view: View, event: AgentEvent) -> View:
    """The view after ``event``; an equal view means there is nothing new to show."""
    if isinstance(event, Started):
        return replace(view, model=event.model)
    if isinstance(event, Writing):
        return replace(view, writing=latest(event.text), thinks=False, note="")
    if (view.writing or view.thinks) and isinstance(event, Text | ToolUse | Limit):
        view = replace(view, writing="", thinks=False)
    return _reduced(view, event)


def _reduced(view: View, event: AgentEvent) -> View:
    match event:
        case ToolUse(name=name, summary=summary):
            label = f"{name}: {summary}" if summary else name
            return replace(view, activity=label, is_tool=True, last_tool=label, tools=view.tools + 1, note="")
        case ToolResult(ok=False):
            return replace(view, failed_tools=view.failed_tools + 1)
        case Text(text=text) if text.strip():
            return replace(view, activity=text.strip(), is_tool=False, note="", said=text.strip())
        case Thinking():
            return replace(view, thinks=True, note="")
        case Plan(steps=steps):
            return replace(view, plan=steps)
        case Limit(text=text):
            return replace(view, note=text)
        case Usage():
            return replace(view, usage=event)
        case _:
            return view
