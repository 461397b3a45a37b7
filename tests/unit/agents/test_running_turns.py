"""How a turn begins and ends in a backend: who owns a session, and who is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path

from codebutler.domain.clock import ManualClock
from codebutler_worker.agents.backend import AgentEvent, Finished, Text, TurnRequest
from codebutler_worker.agents.record import SessionLog
from codebutler_worker.agents.running import BUSY, RunningTurns

DONE = Finished(ok=True, text="", reason="done")


@dataclass
class Agent:
    """Works until it is let go; its program ends when that is let go."""

    running: RunningTurns[str] = field(default_factory=lambda: RunningTurns(ManualClock()))
    working: asyncio.Event = field(default_factory=asyncio.Event)
    ending: asyncio.Event = field(default_factory=asyncio.Event)
    logs: list[SessionLog] = field(default_factory=list)

    async def work(self, turn: TurnRequest, log: SessionLog) -> AsyncGenerator[AgentEvent]:
        self.logs.append(log)
        self.running.claim(turn.session_id or "")
        try:
            yield Text("begun")
            with self.running.heard_by(turn.turn_id, f"listener of {turn.turn_id}"):
                yield Text("listening")
                await self.working.wait()
            yield DONE
        finally:
            await self.running.release({turn.session_id or ""}, self._end(), "end")

    async def _end(self) -> None:
        await self.ending.wait()

    def start(self, turn_id: str, session_id: str = "s") -> AsyncGenerator[AgentEvent]:
        request = TurnRequest(
            turn_id=turn_id, conversation="c", prompt="", workdir=Path("/"), session_id=session_id
        )
        return self.running.run(request, self.work)


async def rest(events: AsyncGenerator[AgentEvent]) -> list[AgentEvent]:
    return [event async for event in events]


async def test_a_session_that_has_an_owner_runs_nothing_else() -> None:
    agent = Agent()
    first = agent.start("1")
    await anext(first)
    assert await rest(agent.start("2")) == [Finished(ok=False, text=BUSY, reason="failed")]
    other = agent.start("3", "another session")
    assert await anext(other) == Text("begun")
    agent.working.set()
    agent.ending.set()
    assert (await rest(first))[-1] == (await rest(other))[-1] == DONE


async def test_the_owner_keeps_its_session_until_its_process_is_gone() -> None:
    agent = Agent()
    agent.working.set()
    first = agent.start("1")
    while await anext(first) != DONE:
        pass
    leaving = asyncio.ensure_future(anext(first, None))
    second = asyncio.ensure_future(anext(agent.start("2")))
    done, _ = await asyncio.wait(
        {second, asyncio.ensure_future(asyncio.sleep(0))}, return_when="FIRST_COMPLETED"
    )
    assert second not in done
    agent.ending.set()
    assert await second == Text("begun")
    assert await leaving is None


async def test_a_stop_is_kept_for_a_turn_that_cannot_hear_yet() -> None:
    agent = Agent()
    events = agent.start("1")
    await anext(events)
    assert agent.running.stop("1") is None
    assert agent.running.unwanted("1")
    await anext(events)
    assert agent.running.stop("1") == agent.running.listener("1") == "listener of 1"
    agent.working.set()
    agent.ending.set()
    assert await rest(events) == [DONE]
    assert not agent.running.unwanted("1")


async def test_a_stop_of_a_turn_that_does_not_run_means_none() -> None:
    running: RunningTurns[str] = RunningTurns(ManualClock())
    assert running.stop("1") is None
    assert not running.unwanted("1")


async def test_once_closed_no_turn_is_wanted_and_the_end_waits_for_every_process() -> None:
    agent = Agent()
    events = agent.start("1")
    await anext(events)
    await anext(events)
    assert agent.running.close() == ["listener of 1"]
    assert agent.running.unwanted("any")
    agent.working.set()
    assert await anext(events) == DONE
    last = asyncio.ensure_future(anext(events, None))
    ended = asyncio.ensure_future(agent.running.ended())
    agent.ending.set()
    await asyncio.gather(last, ended)
    assert agent.running.listeners() == []


async def test_what_a_turn_came_to_is_in_its_log() -> None:
    agent = Agent()
    agent.working.set()
    agent.ending.set()
    await rest(agent.start("1"))
    assert agent.logs[0].told == "status=done"
