"""How a turn begins and ends in a backend: who owns a session, and who is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

from codebutler.domain.errors import StoreError
from codebutler_worker.agents.backend import AgentEvent, Finished, Text, TurnRequest
from codebutler_worker.agents.running import BUSY, LiveTurn, TurnBackend
from codebutler_worker.agents.session_logs import SessionLog
from tests.clock import ManualClock

DONE = Finished(ok=True, text="", reason="done")


class Listener(LiveTurn):
    def __init__(self) -> None:
        self.stops = 0

    async def stop(self) -> None:
        self.stops += 1


class Agent(TurnBackend[Listener]):
    """Works until it is let go; its program ends when that is let go."""

    def __init__(self) -> None:
        super().__init__(ManualClock())
        self.listener = Listener()
        self.working = asyncio.Event()
        self.ending = asyncio.Event()
        self.logs: list[SessionLog] = []

    async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
        self.logs.append(record)
        self._owned[turn.turn_id].add(turn.session_id or "")
        try:
            yield Text("begun")
            self._live[turn.turn_id] = self.listener
            yield Text("listening")
            await self.working.wait()
            self._live[turn.turn_id] = None
            yield Finished(ok=False, text="", reason="stopped") if turn.turn_id in self._stopped else DONE
        finally:
            await asyncio.shield(self._end(turn.turn_id, self._ended(turn.turn_id)))

    async def _ended(self, turn_id: str) -> None:
        await self.ending.wait()
        self._owned.pop(turn_id, None)

    def turn(self, turn_id: str, session_id: str = "s") -> AsyncGenerator[AgentEvent]:
        return self.start(
            TurnRequest(
                turn_id=turn_id, conversation="c", prompt="", workdir=Path("/"), session_id=session_id
            )
        )


async def rest(events: AsyncGenerator[AgentEvent]) -> list[AgentEvent]:
    return [event async for event in events]


async def test_a_session_that_has_an_owner_runs_nothing_else() -> None:
    agent = Agent()
    first = agent.turn("1")
    await anext(first)
    assert await rest(agent.turn("2")) == [Finished(ok=False, text=BUSY, reason="failed")]
    other = agent.turn("3", "another session")
    assert await anext(other) == Text("begun")
    agent.working.set()
    agent.ending.set()
    assert (await rest(first))[-1] == (await rest(other))[-1] == DONE


async def test_with_another_model_or_mode_it_has_the_same_owner() -> None:
    agent, chosen = Agent(), Agent()
    chosen.share_sessions(agent)
    first = agent.turn("1")
    await anext(first)
    assert await rest(chosen.turn("2")) == [Finished(ok=False, text=BUSY, reason="failed")]
    for each in (agent, chosen):
        each.working.set()
        each.ending.set()
    assert (await rest(first))[-1] == (await rest(chosen.turn("3")))[-1] == DONE


async def test_the_owner_keeps_its_session_until_its_process_is_gone() -> None:
    agent = Agent()
    agent.working.set()
    first = agent.turn("1")
    while await anext(first) != DONE:
        pass
    leaving = asyncio.ensure_future(anext(first, None))
    second = asyncio.ensure_future(anext(agent.turn("2")))
    done, _ = await asyncio.wait(
        {second, asyncio.ensure_future(asyncio.sleep(0))}, return_when="FIRST_COMPLETED"
    )
    assert second not in done
    agent.ending.set()
    assert await second == Text("begun")
    assert await leaving is None


async def test_a_stop_is_kept_for_a_turn_that_cannot_hear_yet() -> None:
    agent = Agent()
    events = agent.turn("1")
    await anext(events)
    assert await agent.stop("1") is None
    assert agent.listener.stops == 0
    await anext(events)
    agent.working.set()
    agent.ending.set()
    assert [getattr(event, "reason", "") for event in await rest(events)] == ["stopped"]
    assert (await rest(agent.turn("1")))[-1] == DONE


async def test_one_that_hears_is_told_to_stop() -> None:
    agent = Agent()
    events = agent.turn("1")
    await anext(events)
    await anext(events)
    await agent.stop("1")
    await agent.stop("another")
    assert agent.listener.stops == 1
    agent.working.set()
    agent.ending.set()
    await rest(events)
    await agent.stop("1")
    assert agent.listener.stops == 1


async def test_once_closed_no_turn_is_wanted_and_the_end_waits_for_every_process() -> None:
    agent = Agent()
    events = agent.turn("1")
    await anext(events)
    await anext(events)
    agent.working.set()
    assert getattr(await anext(events), "reason", "") == "done"
    last = asyncio.ensure_future(anext(events, None))
    closing = asyncio.ensure_future(agent.close())
    done, _ = await asyncio.wait(
        {closing, asyncio.ensure_future(asyncio.sleep(0))}, return_when="FIRST_COMPLETED"
    )
    assert closing not in done
    agent.ending.set()
    await asyncio.gather(last, closing)
    assert (await rest(agent.turn("2")))[-1] != DONE


async def test_what_a_turn_came_to_is_in_its_log() -> None:
    agent = Agent()
    agent.working.set()
    agent.ending.set()
    await rest(agent.turn("1"))
    assert agent.logs[0].finished == DONE


async def test_an_error_ends_the_turn_as_an_agent_that_is_not_available() -> None:
    class Missing(Agent):
        async def _work(self, turn: TurnRequest, record: SessionLog) -> AsyncGenerator[AgentEvent]:
            yield Text("begun")
            raise StoreError("the disk is full")

    missing = Missing()
    assert (await rest(missing.turn("1")))[-1] == Finished(False, "the disk is full", "unavailable")
