"""The one message of a turn that is edited while it runs, and what it shrinks to at the end. Pure."""

from __future__ import annotations

from typing import Literal

from codebutler.actions import STOP_ACTION
from codebutler.message import Button, Message, said
from codebutler.text.amounts import amount
from codebutler.text.markup import plain
from codebutler_worker.present.lines import (
    code,
    count,
    money,
    one_line,
    ordinal,
    span,
)
from codebutler_worker.present.reducer import View
from codebutler_worker.tools.plan import PlanStep

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


def running(view: View, elapsed_s: float, turn_id: str, agent: str) -> Message:
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


def collapsed(outcome: Outcome, view: View, elapsed_s: float) -> Message:
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


def _headline(view: View, elapsed_s: float, agent: str) -> str:
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


def _figures(view: View, elapsed_s: float) -> str:
    """Time, tool calls, and what it has cost so far: money where the agent tells, else tokens."""
    parts = [span(elapsed_s), *_tool_calls(view)]
    if view.usage.cost_usd is not None:
        parts.append(money(view.usage.cost_usd))
    elif tokens := view.usage.input_tokens + view.usage.output_tokens:
        parts.append(amount("tokens", tokens))
    return " · ".join(parts)


def _tool_calls(view: View) -> list[str]:
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


def _writing_lines(view: View) -> list[str]:
    # Half of it cannot be told apart as Markdown, but for what stands out most.
    lines = (plain(line.replace("**", "*")) for line in view.writing.split("\n"))
    return [f"> {line}" for line in lines] if view.writing else []


def _note_lines(view: View) -> list[str]:
    return [f"⏳ {plain(one_line(view.note))}"] if view.note else []
