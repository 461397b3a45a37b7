"""Waiting for one of several things, on the given clock."""

from __future__ import annotations

import asyncio

import pytest

from codebutler.platform.tasks import first_of, settled_within, wait_for
from tests.clock import ManualClock, settle


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise LookupError("no")


async def test_the_first_ends_the_wait_and_the_others() -> None:
    before = asyncio.all_tasks()
    await first_of(for_ever(), asyncio.sleep(0))
    assert asyncio.all_tasks() == before


async def test_what_the_first_raises_is_raised() -> None:
    with pytest.raises(LookupError):
        await first_of(for_ever(), fail())


async def test_an_event_that_comes_in_time() -> None:
    clock, event = ManualClock(), asyncio.Event()
    waiting = asyncio.create_task(wait_for(clock, event, 10))
    await settle()
    event.set()
    assert await waiting
    assert await wait_for(clock, event, 0)


async def test_an_event_that_does_not_come() -> None:
    clock, event = ManualClock(), asyncio.Event()
    waiting = asyncio.create_task(wait_for(clock, event, 10))
    await settle()
    await clock.advance(10)
    assert not await waiting
    assert not await wait_for(clock, event, 0)


async def test_a_future_is_not_cancelled_when_its_time_is_over() -> None:
    clock = ManualClock()
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(settled_within(clock, future, 10))
    await settle()
    await clock.advance(10)
    assert not await waiting
    future.set_result("late")
    assert await settled_within(clock, future, 10)
