"""How a running turn is shown. Pure: no clock, no store.

The one message that is edited while it runs, and its final line; its tools; and the events for listeners at
the machine, who get more, and sooner, than a chat takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from codebutler.domain.message import STOP_ACTION, Button, Message, said
from codebutler.domain.refs import MessageRef
from codebutler.protocol.messages import Live
from codebutler.text.amounts import amount
from codebutler.text.disguised import CUT
from codebutler.text.envelope import before_any
from codebutler.text.markup import fence, plain
from codebutler_worker.agents.backend import (
    AgentEvent,
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
from codebutler_worker.present.lines import code, count, one_line, ordinal, span
from codebutler_worker.tools.outcome import PlanStep

MOST_LINES = 6
MOST_CHARS = 500
Outcome = Literal["done", "failed", "stopped", "interrupted", "parked"]
SIGNS: dict[Outcome, str] = {
    "done": "✅",
    "failed": "❌",
    "stopped": "🛑",
    "interrupted": "⚠️",
    "parked": "⏸️",
}
BOXES = {"pending": "·", "in_progress": "▸", "done": "✓"}
_PLAN_LINES = 8
FAR = 9
"""Places beyond this one are shown as far back: exact ones would need an edit at each start."""
RESULT_CHARS = 700
RESULT_LINES = 15
MAX_CHARS = 200_000
TOOL_CHARS = 200


@dataclass(frozen=True, slots=True)
class TurnProgress:
    """What is known of a running turn. ``last_tool`` outlives its result: recovery and people ask for it.
    ``model`` is the one that answers, if the agent says. ``said`` is its latest text, ``writing`` the end of
    what it is writing now; ``thinks``: it neither writes nor acts. ``waits``: what it needs from a person
    ("approval", "answer"), "" if nothing."""

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


def reduce(view: TurnProgress, event: AgentEvent) -> TurnProgress:
    """The view after ``event``; an equal view means there is nothing new to show."""
    match event:
        case Started(model=model):
            return replace(view, model=model)
        case Writing(text=text):
            return replace(view, writing=latest(text), thinks=False, note="")
        case ToolUse(name=name, summary=summary):
            label = tool_label(name, summary)
            view = replace(view, writing="", thinks=False, note="", last_tool=label, tools=view.tools + 1)
            return replace(view, activity=label, is_tool=True)
        case ToolResult(ok=False):
            return replace(view, failed_tools=view.failed_tools + 1)
        case Text(text=text):
            view, said = replace(view, writing="", thinks=False), text.strip()
            return replace(view, activity=said, is_tool=False, note="", said=said) if said else view
        case Thinking():
            return replace(view, thinks=True, note="")
        case Plan(steps=steps):
            return replace(view, plan=steps)
        case Refusal(text=text):
            return replace(view, writing="", thinks=False, note=text)
        case Usage():
            return replace(view, usage=event)
    return view


def tool_label(name: str, summary: str) -> str:
    """A tool call in a few words."""
    return f"{name}: {summary}" if summary else name


def prose(text: str) -> str:
    """The part of the unfinished text that is surely prose; the content of an envelope is posted separately."""
    return before_any(text.removesuffix(CUT))


def latest(text: str) -> str:
    """The last lines of the prose with runs of space collapsed; "" if there is none."""
    lines = [" ".join(line.split()) for line in prose(text).split("\n")]
    kept: list[str] = []
    room = MOST_CHARS
    for line in reversed([line for line in lines if line]):
        if len(kept) == MOST_LINES or room <= 0:
            break
        kept.append(line if len(line) <= room else CUT + line[-room:])
        room -= len(line)
    return "\n".join(reversed(kept)) + (CUT if kept else "")


def running(view: TurnProgress, elapsed_s: float, turn_id: str, agent: str, name: str = "") -> Message:
    """What the agent is doing, for how long, and a button that stops it. ``name``: the agent's, if several work."""
    lines = [_headline(view, elapsed_s, agent, name), *_plan_lines(view.plan)]
    if view.writing:
        # Cut Markdown cannot be parsed; at least remove the marks that would show most.
        lines += [f"> {plain(line.replace('**', '*'))}" for line in view.writing.split("\n")]
    if view.note:
        lines.append(f"⏳ {plain(one_line(view.note))}")
    return said("\n".join(lines), Button("Stop", STOP_ACTION, turn_id, "danger"))


def collapsed(outcome: Outcome, view: TurnProgress, elapsed_s: float, name: str = "") -> Message:
    """The line that remains when the run is over. It does not repeat the answer's footer. ``name`` as above."""
    if outcome == "done":
        return said(_named(name) + " · ".join([f"{SIGNS[outcome]} Done", *_tool_calls(view)]))
    return said(f"{_named(name)}{SIGNS[outcome]} {_figures(view, elapsed_s)}")


def _named(name: str) -> str:
    return f"{code(name)} · " if name else ""


def in_line(place: int, turn_id: str) -> Message:
    """How many have to start before a waiting turn (1 = none), and a button that takes it out of the queue."""
    where = "Next" if place == 1 else ordinal(place)
    if place > FAR:
        where = f"Far back ({ordinal(FAR + 1)} or later)"
    return said(f"⏳ {where} in line.", Button("Withdraw", STOP_ACTION, turn_id))


def _headline(view: TurnProgress, elapsed_s: float, agent: str, name: str) -> str:
    if view.waits:
        doing = f"✋ {plain(agent)} is waiting for your {view.waits}"
    elif view.writing:
        doing = f"💬 {plain(agent)} is writing"
    elif view.thinks:
        doing = f"💭 {plain(agent)} is thinking"
    elif not view.activity:
        doing = f"🔧 {plain(agent)} is working"
    elif view.is_tool:
        doing = f"{_named(name)}🔧 {code(view.activity)}"
    else:
        doing = f"{_named(name)}💬 {plain(one_line(view.activity))}"
    return f"{doing} · {_figures(view, elapsed_s)}"


def _figures(view: TurnProgress, elapsed_s: float) -> str:
    """Time, tool calls, and the cost so far: money if the agent reports it, else tokens."""
    parts = [span(elapsed_s), *_tool_calls(view)]
    if view.usage.cost_usd is not None:
        parts.append(amount("usd", view.usage.cost_usd))
    elif tokens := view.usage.input_tokens + view.usage.output_tokens:
        parts.append(amount("tokens", tokens))
    return " · ".join(parts)


def _tool_calls(view: TurnProgress) -> list[str]:
    return [count(view.tools, "tool call")] if view.tools else []


def _plan_lines(plan: tuple[PlanStep, ...]) -> list[str]:
    """The steps; of a long plan those around the current one."""
    done = 0
    if len(plan) > _PLAN_LINES:
        # Done steps go first: people look for the current step and the next ones.
        while done < len(plan) - _PLAN_LINES + 1 and plan[done].state == "done":
            done += 1
    rest = plan[done:]
    shown = [f"{BOXES[step.state]} {plain(one_line(step.text, 100))}" for step in rest[:_PLAN_LINES]]
    hidden = len(rest) - len(shown)
    head = [f"{BOXES['done']} {done} done"] if done else []
    return [*head, *shown, *([f"… and {hidden} more"] if hidden else [])]


def tool_result(label: str, text: str, *, ok: bool, redact: Callable[[str], str]) -> str:
    """The call in one line, and the start of its result."""
    head = f"{'✓' if ok else '✗'} {code(label)}"
    # Before the cut: the second half of a key no longer looks like one.
    lines = redact(text).strip().splitlines()
    shown = "\n".join(lines[:RESULT_LINES])[:RESULT_CHARS]
    if not shown.strip():
        return head
    cut = "\n…" if len(lines) > RESULT_LINES or len("\n".join(lines)) > RESULT_CHARS else ""
    return f"{head}\n{fence(shown + cut)}"


def joined(entries: list[str], left_out: int) -> str:
    """Several calls as one message."""
    more = [f"… and {left_out} more, too many to show"] if left_out else []
    return "\n".join([*entries, *more])


def live(event: AgentEvent, thread: MessageRef) -> Live | None:
    """The event for the thread's listeners; None for one they do not need."""
    match event:
        case Text(text=text) if text.strip():
            return Live(thread=thread, kind="text", text=text[:MAX_CHARS])
        case Writing(text=text) if text.strip():
            return Live(thread=thread, kind="writing", text=prose(text)[:MAX_CHARS])
        case ToolUse(name=name, summary=summary):
            label = one_line(tool_label(name, summary), TOOL_CHARS)
            return Live(thread=thread, kind="tool", text=f"🔧 {label}")
        case ToolResult(ok=False, text=text):
            return Live(thread=thread, kind="tool", text=f"❌ {one_line(text, TOOL_CHARS)}")
        case Plan(steps=steps):
            lines = [f"{BOXES[step.state]} {one_line(step.text, TOOL_CHARS)}" for step in steps]
            return Live(thread=thread, kind="plan", text="\n".join(lines)) if lines else None
        case Refusal(text=text):
            return Live(thread=thread, kind="note", text=f"⏳ {one_line(text, TOOL_CHARS)}")
    return None
