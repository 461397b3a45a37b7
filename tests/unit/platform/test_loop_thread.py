"""What runs in the loop of another thread, and how it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from codebutler.platform.tasks import LoopThread


async def where() -> str:
    return threading.current_thread().name


async def test_it_returns_and_raises_what_the_work_does_there() -> None:
    async def fail() -> None:
        raise ValueError("no")

    async with LoopThread("own") as own:
        assert await own.run(where()) == "own"
        with pytest.raises(ValueError, match="no"):
            await own.run(fail())
    assert await where() != "own"


async def test_a_context_is_entered_and_left_there() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[str]:
        seen.append(await where())
        yield "made"
        seen.append(await where())

    async with LoopThread("own") as own, own.entered(context()) as made:
        assert made == "made"
    assert seen == ["own", "own"]


async def test_cancelling_reaches_it_and_nothing_is_left_at_the_end() -> None:
    ended: list[str] = []
    begun = threading.Event()

    async def wait(name: str) -> None:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with LoopThread("own") as own:
        task = asyncio.create_task(own.run(wait("cancelled")))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await own.run(asyncio.sleep(0))
        assert ended == ["cancelled"]
        begun.clear()
        left = asyncio.create_task(own.run(wait("left")))
        await asyncio.to_thread(begun.wait)
    assert ended == ["cancelled", "left"]
    with pytest.raises(asyncio.CancelledError):
        await left
