"""The one message of a turn that is edited while it runs, and what it shrinks to at the end. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from codebutler_worker.agents.backend import PlanStep
from codebutler_worker.present.lines import clip, code, count, one_line, plain, span
from codebutler_worker.present.reducer import View

STOP_ACTION = "codebutler.stop"
RETRY_ACTION = "codebutler.retry"
DROP_ACTION = "codebutler.drop"

Outcome = Literal["done", "failed", "stopped", "interrupted"]
SIGNS: dict[Outcome, str] = {"done": "✅", "failed": "❌", "stopped": "🛑", "interrupted": "⚠️"}
_BOXES = {"pending": "☐", "in_progress": "▶", "done": "☑"}
_PLAN_LINES = 8
SECTION_CHARS = 3000


@dataclass(frozen=True, slots=True)
class Message:
    """The content of a message: mrkdwn text, and blocks that win where they can be shown."""

    text: str
    blocks: tuple[dict[str, Any], ...] = ()


def button(label: str, action_id: str, value: str, style: str = "") -> dict[str, Any]:
    """One Block Kit button; ``style`` is "", "primary" or "danger"."""
    element: dict[str, Any] = {
        "type": "button",
        "text": {"type": "plain_text", "text": label},
        "action_id": action_id,
        "value": value,
    }
    return {**element, "style": style} if style else element


def with_buttons(text: str, *buttons: dict[str, Any]) -> Message:
    """``text`` (mrkdwn) above a row of buttons; a section block takes 3,000 characters."""
    text = clip(text, SECTION_CHARS)
    section = {"type": "section", "text": {"type": "mrkdwn", "text": text}}
    return Message(text, (section, {"type": "actions", "elements": list(buttons)}))


def running(view: View, elapsed_s: float, turn_id: str, agent: str) -> Message:
    """What the agent does now, for how long, and a button that stops it."""
    text = "\n".join([_headline(view, elapsed_s, agent), *_plan_lines(view.plan), *_note_lines(view)])
    return with_buttons(text, button("Stop", STOP_ACTION, turn_id, "danger"))


def collapsed(outcome: Outcome, view: View, elapsed_s: float) -> Message:
    """The one line that is left when the turn is over."""
    parts = [span(elapsed_s)]
    if view.tools:
        parts.append(count(view.tools, "tool"))
    return Message(f"{SIGNS[outcome]} {' · '.join(parts)}")


def _headline(view: View, elapsed_s: float, agent: str) -> str:
    if not view.activity:
        doing = f"🔧 {plain(agent)} is working"
    elif view.is_tool:
        doing = f"🔧 {code(view.activity)}"
    else:
        doing = f"💬 {plain(one_line(view.activity))}"
    parts = [doing, span(elapsed_s)]
    if view.tools:
        parts.append(count(view.tools, "tool"))
    return " · ".join(parts)


def _plan_lines(plan: tuple[PlanStep, ...]) -> list[str]:
    shown = [f"{_BOXES[step.state]} {plain(one_line(step.text, 100))}" for step in plan[:_PLAN_LINES]]
    hidden = len(plan) - len(shown)
    return [*shown, f"… and {hidden} more"] if hidden else shown


def _note_lines(view: View) -> list[str]:
    return [f"⏳ {plain(one_line(view.note))}"] if view.note else []
