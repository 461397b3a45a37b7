"""What we say about an agent whose usage limit is hit: asked about, taken over, answered for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from codebutler.domain.message import DROP_ACTION, RETRY_ACTION, WAIT_ACTION, Button, Message, said
from codebutler.text.markup import plain
from codebutler_worker.present.lines import code, one_line
from codebutler_worker.present.notices import ANOTHER

WAITING_NOW = "⏳ Waiting for the reset."


def moment(at: datetime) -> str:
    """A point in time for people."""
    when = at.astimezone(UTC)
    return f"{when:%H:%M} UTC on {when:%d %B}"


def asking_text(line: str, reset: datetime | None) -> str:
    """The limit, and when it resets, if that is known."""
    resets = f"The limit resets at {moment(reset)}. " if reset else ""
    return f"⏸️ {plain(one_line(line, 500))}\n{resets}Nothing resumes automatically."


def asking(
    turn_id: str, line: str, reset: datetime | None, others: Sequence[str], *, may_wait: bool
) -> Message:
    """Asks how to continue: ``may_wait`` for the reset, with one of ``others``, or not at all."""
    first = Button("Try now", RETRY_ACTION, turn_id)
    text = f"{asking_text(line, reset)} How should this continue?"
    if not may_wait:
        text = f"{asking_text(line, reset)} (`agent.resumeAtReset` is off.)"
    elif reset is not None:
        first = Button(f"Wait until {reset.astimezone(UTC):%H:%M} UTC", WAIT_ACTION, turn_id)
    on_another = (Button(f"Continue on {name}", RETRY_ACTION, f"{turn_id}{ANOTHER}{name}") for name in others)
    return said(text, first, *on_another, Button("Stop", DROP_ACTION, turn_id))


def cannot_take_over(successor: str, why: str) -> str:
    """Why the agent that should take over does not."""
    return f"{successor} cannot take over: {why.rstrip('.')}."


def taken_over(agent: str, line: str, reset: datetime | None, successor: str) -> Message:
    """Who continues and why, and who answers the next messages."""
    then = (
        f"New messages go to {code(agent)} again after {moment(reset)}."
        if reset
        else f"New messages try {code(agent)} first."
    )
    return said(
        f"⏭️ {plain(one_line(line, 500))}\n{code(agent)} is at its usage limit, so {code(successor)} continues here "
        f"(`agent.onLimit`), with what was said and done so far. {then}"
    )


def answers_instead(agent: str, reset: datetime, successor: str) -> Message:
    """Said once in each thread, until the reset."""
    return said(
        f"⏭️ {code(agent)} is at its usage limit until {moment(reset)}, so {code(successor)} answers here until then "
        f"(`agent.onLimit`). To try {code(agent)} anyway, begin the message with `{agent}:`."
    )
