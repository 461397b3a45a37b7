"""What a stop and the time limit cut off, and that people may take their time."""

from __future__ import annotations

import asyncio

import pytest

from codebutler_worker.agents.backend import Answer
from codebutler_worker.agents.running import CutOffError, Waits
from tests.clock import ManualClock, settle

LIMIT_S = 60.0


async def word() -> str:
    return "done"


async def forever() -> str:
    await asyncio.Event().wait()
    return "never"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_work_yields_its_result(clock: ManualClock) -> None:
    assert await Waits(clock, LIMIT_S).work(word()) == "done"


async def test_a_stop_cuts_work_off_and_lets_none_begin(clock: ManualClock) -> None:
    waits = Waits(clock, LIMIT_S)
    working = asyncio.create_task(waits.work(forever()))
    await settle()
    waits.stopping.set()
    with pytest.raises(CutOffError) as caught:
        await working
    assert caught.value.reason == "stopped"
    with pytest.raises(CutOffError):
        await waits.work(word())


async def test_the_time_of_all_work_is_limited_together(clock: ManualClock) -> None:
    waits = Waits(clock, LIMIT_S)

    async def some() -> str:
        await clock.advance(LIMIT_S - 1)
        return "some"

    assert await waits.work(some()) == "some"
    working = asyncio.create_task(waits.work(forever()))
    await settle()
    await clock.advance(2)
    with pytest.raises(CutOffError) as caught:
        await working
    assert caught.value.reason == "timeout"


async def test_people_may_take_their_time(clock: ManualClock) -> None:
    waits = Waits(clock, LIMIT_S)
    waits.expect("q")
    waiting = asyncio.create_task(waits.answered("q"))
    await clock.advance(10 * LIMIT_S)
    assert await waits.answer("q", Answer(allow=True, text="yes"))
    assert not await waits.answer("q", Answer(allow=False))
    assert (await waiting).text == "yes"
    assert not await waits.answer("q", Answer(allow=True))
    assert await waits.work(word()) == "done"


async def test_nobody_waits_for_people_after_a_stop(clock: ManualClock) -> None:
    waits = Waits(clock, LIMIT_S)
    waits.expect("q")
    waits.stopping.set()
    with pytest.raises(CutOffError):
        await waits.answered("q")
