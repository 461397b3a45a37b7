"""Scripts for the rehearsal agent: a test says what each turn does, step by step."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from codebutler_worker.agents.backend import AgentEvent, Approval, Question


@dataclass(frozen=True, slots=True)
class Emit:
    """Say this."""

    event: AgentEvent


@dataclass(frozen=True, slots=True)
class Hold:
    """Go on when ``gate`` is set; ``reached`` tells the test that the turn stands here."""

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    reached: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Delay:
    """Let the clock run for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask, and go on when the answer is there."""

    event: Approval | Question


Step = Emit | Hold | Delay | Ask


class Script:
    """One list of steps per turn, in the order in which turns start; after the last the agent is itself again.

    A turn whose steps end without a Finished is done.
    """

    def __init__(self, turns: Iterable[Sequence[Step]]) -> None:
        self._turns = deque(turns)

    def next_turn(self) -> Sequence[Step] | None:
        """The steps of the turn that starts now; None once there is no script left."""
        return self._turns.popleft() if self._turns else None
