"""The card of a turn that waits for its agent's service. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from codebutler.actions import DROP_ACTION, RETRY_ACTION
from codebutler.message import Button, Message, said
from codebutler.text.markup import plain
from codebutler_worker.present.lines import one_line, span

RESUMED = "▶ Resumed."
ANOTHER = ":"
"""Between the turn and the agent in the value of a button that goes on with another agent."""


def parked_text(line: str, at: datetime) -> str:
    """What happened, and when it goes on by itself."""
    when = at.astimezone(UTC)
    return f"⏸️ {plain(one_line(line, 500))}\nResumes automatically at {when:%H:%M} UTC on {when:%d %B}."


def parked(turn_id: str, line: str, at: datetime, now: datetime, others: Sequence[str]) -> Message:
    """The same with the choice to go on sooner, with one of ``others``, or not at all."""
    text = f"{parked_text(line, at)} That is in {span((at - now).total_seconds())}."
    on_another = (Button(f"Continue on {name}", RETRY_ACTION, f"{turn_id}{ANOTHER}{name}") for name in others)
    return said(
        text, Button("Try now", RETRY_ACTION, turn_id), Button("Drop", DROP_ACTION, turn_id), *on_another
    )
