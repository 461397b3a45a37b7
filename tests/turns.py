"""A turn of an agent, heard from its beginning to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from codebutler_worker.agents.backend import (
    AgentBackend,
    AgentEvent,
    Answer,
    Approval,
    Finished,
    Question,
    TurnRequest,
)

LIMIT_S = 120.0


def undecided(_asked: AgentEvent) -> None:
    """Whatever is asked is left to wait."""


async def heard(
    backend: AgentBackend, turn: TurnRequest, decide: Callable[[AgentEvent], Answer | None] = undecided
) -> list[AgentEvent]:
    """Every event of the turn; what is asked is answered as ``decide`` says."""
    events = []
    async with asyncio.timeout(LIMIT_S):
        async for event in backend.start(turn):
            events.append(event)
            if isinstance(event, Approval | Question) and (answer := decide(event)) is not None:
                assert await backend.answer(turn.turn_id, event.id, answer)
    return events


def end(events: Sequence[AgentEvent]) -> Finished:
    """The end of a turn, which is the last event and the only one of its kind."""
    assert [event for event in events if isinstance(event, Finished)] == [events[-1]]
    assert isinstance(events[-1], Finished)
    return events[-1]
