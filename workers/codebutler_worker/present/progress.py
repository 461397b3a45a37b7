"""What is shown of a running turn. Pure: no clock, no store.

The one message that is edited while it runs, and what that shrinks to; its tools; and what those hear who listen at
its machine, which is more, and sooner, than a chat takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from codebutler.domain.message import STOP_ACTION, Button, Message, said
from codebutler.protocol.messages import Live
from codebutler.text.amounts import amount
from codebutler.text.disguised import CUT
from codebutler.text.markup import fence, plain
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
from codebutler_worker.present.lines import code, count, money, one_line, ordinal, span
from codebutler_worker.tools.outcome import PlanStep

MOST_LINES = 6
MOST_CHARS = 500
_ENVELOPE = re.compile(r"<{3}(?:S(?:L(?:A(?:C(?:K.*)?)?)?)?)?\Z|<{3}SLACK.*", re.IGNORECASE | re.DOTALL)
"""From a marker on, or from what may become one, it is no prose: what it encloses is posted by itself."""
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
"""Places beyond this one are told as far: exact ones would have to be edited at each start."""
RESULT_CHARS = 700
RESULT_LINES = 15
MAX_CHARS = 200_000
TOOL_CHARS = 200


@dataclass(frozen=True, slots=True)
class TurnProgress:
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


def reduce(view: TurnProgress, event: AgentEvent) -> TurnProgress:
    """The view after ``event``; an equal view means there is nothing new to show."""
    if isinstance(event, Started):
        return replace(view, model=event.model)
    if isinstance(event, Writing):
        return replace(view, writing=latest(event.text), thinks=False, note="")
    if (view.writing or view.thinks) and isinstance(event, Text | ToolUse | Limit):
        view = replace(view, writing="", thinks=False)
    return _reduced(view, event)


def _reduced(view: TurnProgress, event: AgentEvent) -> TurnProgress:
    match event:
        case ToolUse(name=name, summary=summary):
            label = tool_label(name, summary)
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


def tool_label(name: str, summary: str) -> str:
    """A tool call in a few words."""
    return f"{name}: {summary}" if summary else name


def prose(text: str) -> str:
    """What is sure to be prose of what is being written."""
    return _ENVELOPE.sub("", text.removesuffix(CUT))


def latest(text: str) -> str:
    """The last lines of the prose, one space where there was more room; "" if there is none."""
    lines = [" ".join(line.split()) for line in prose(text).split("\n")]
    kept: list[str] = []
    room = MOST_CHARS
    for line in reversed([line for line in lines if line]):
        if len(kept) == MOST_LINES or room <= 0:
            break
        kept.append(line if len(line) <= room else CUT + line[-room:])
        room -= len(line)
    return "\n".join(reversed(kept)) + (CUT if kept else "")


def running(view: TurnProgress, elapsed_s: float, turn_id: str, agent: str) -> Message:
    """What the agent does now, for how long, and a button that stops it."""
    text = "\n".join(
        [
            _headline(view, elapsed_s, agent),
            *_plan_lines(view.plan),
            *_writing_lines(view),
            *_note_lines(view),
        ]
    )
    return said(text, Button("Stop", STOP_ACTION, turn_id, "danger"))


def collapsed(outcome: Outcome, view: TurnProgress, elapsed_s: float) -> Message:
    """The one line that is left when the run is over. What its answer says below itself is not said here, too."""
    if outcome == "done":
        return said(" · ".join([f"{SIGNS[outcome]} Done", *_tool_calls(view)]))
    return said(f"{SIGNS[outcome]} {_figures(view, elapsed_s)}")


def in_line(place: int, turn_id: str) -> Message:
    """How many have to start before a turn that waits (1 = none), and a button that takes it out of the line."""
    where = "Next" if place == 1 else ordinal(place)
    if place > FAR:
        where = f"Far back ({ordinal(FAR + 1)} or later)"
    return said(f"⏳ {where} in line.", Button("Withdraw", STOP_ACTION, turn_id))


def _headline(view: TurnProgress, elapsed_s: float, agent: str) -> str:
    if view.waits:
        doing = f"✋ {plain(agent)} is waiting for your {view.waits}"
    elif view.writing:
        doing = f"💬 {plain(agent)} is writing"
    elif view.thinks:
        doing = f"💭 {plain(agent)} is thinking"
    elif not view.activity:
        doing = f"🔧 {plain(agent)} is working"
    elif view.is_tool:
        doing = f"🔧 {code(view.activity)}"
    else:
        doing = f"💬 {plain(one_line(view.activity))}"
    return f"{doing} · {_figures(view, elapsed_s)}"


def _figures(view: TurnProgress, elapsed_s: float) -> str:
    """Time, tool calls, and what it has cost so far: money where the agent tells, else tokens."""
    parts = [span(elapsed_s), *_tool_calls(view)]
    if view.usage.cost_usd is not None:
        parts.append(money(view.usage.cost_usd))
    elif tokens := view.usage.input_tokens + view.usage.output_tokens:
        parts.append(amount("tokens", tokens))
    return " · ".join(parts)


def _tool_calls(view: TurnProgress) -> list[str]:
    return [count(view.tools, "tool call")] if view.tools else []


def _plan_lines(plan: tuple[PlanStep, ...]) -> list[str]:
    """The steps; of a long plan those around the one that is worked on."""
    done = 0
    if len(plan) > _PLAN_LINES:
        # Done steps go first: what is worked on and what comes next are what people look for.
        while done < len(plan) - _PLAN_LINES + 1 and plan[done].state == "done":
            done += 1
    rest = plan[done:]
    shown = [f"{BOXES[step.state]} {plain(one_line(step.text, 100))}" for step in rest[:_PLAN_LINES]]
    hidden = len(rest) - len(shown)
    head = [f"{BOXES['done']} {done} done"] if done else []
    return [*head, *shown, *([f"… and {hidden} more"] if hidden else [])]


def _writing_lines(view: TurnProgress) -> list[str]:
    # Half of it cannot be told apart as Markdown, but for what stands out most.
    lines = (plain(line.replace("**", "*")) for line in view.writing.split("\n"))
    return [f"> {line}" for line in lines] if view.writing else []


def _note_lines(view: TurnProgress) -> list[str]:
    return [f"⏳ {plain(one_line(view.note))}"] if view.note else []


def tool_result(label: str, text: str, *, ok: bool, redact: Callable[[str], str]) -> str:
    """The call in one line, and the beginning of what it answered."""
    head = f"{'✓' if ok else '✗'} {code(label)}"
    # Before it is cut: the second half of a key does not look like one any more.
    lines = redact(text).strip().splitlines()
    shown = "\n".join(lines[:RESULT_LINES])[:RESULT_CHARS]
    if not shown.strip():
        return head
    cut = "\n…" if len(lines) > RESULT_LINES or len("\n".join(lines)) > RESULT_CHARS else ""
    return f"{head}\n{fence(shown + cut)}"


def joined(entries: list[str], left_out: int) -> str:
    """Several of them as one message."""
    more = [f"… and {left_out} more, too many to show"] if left_out else []
    return "\n".join([*entries, *more])


def live(event: AgentEvent, thread_ts: str) -> Live | None:
    """The event for listeners to the thread; None for what they do not need."""
    match event:
        case Text(text=text) if text.strip():
            return Live(thread_ts=thread_ts, kind="text", text=text[:MAX_CHARS])
        case Writing(text=text) if text.strip():
            return Live(thread_ts=thread_ts, kind="writing", text=prose(text)[:MAX_CHARS])
        case ToolUse(name=name, summary=summary):
            label = one_line(tool_label(name, summary), TOOL_CHARS)
            return Live(thread_ts=thread_ts, kind="tool", text=f"🔧 {label}")
        case ToolResult(ok=False, text=text):
            return Live(thread_ts=thread_ts, kind="tool", text=f"❌ {one_line(text, TOOL_CHARS)}")
        case Plan(steps=steps):
            lines = [f"{BOXES[step.state]} {one_line(step.text, TOOL_CHARS)}" for step in steps]
            return Live(thread_ts=thread_ts, kind="plan", text="\n".join(lines)) if lines else None
        case Limit(text=text):
            return Live(thread_ts=thread_ts, kind="note", text=f"⏳ {one_line(text, TOOL_CHARS)}")
    return None
