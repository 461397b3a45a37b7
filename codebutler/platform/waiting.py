"""Waiting for one of several things, and no longer than a while on the given clock. Nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from random import Random
from typing import Any

from codebutler.domain.clock import Clock


async def first_of(*parts: Coroutine[Any, Any, Any]) -> None:
    """Return when one of ``parts`` has ended; the others are cancelled and awaited. Raises what it raised."""
    tasks = [asyncio.create_task(part, name="wait") for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def wait_for(clock: Clock, event: asyncio.Event, at_most_s: float | None) -> bool:
    """True if the event came; False if ``at_most_s`` seconds passed first (None = wait for ever)."""
    if at_most_s is None:
        await event.wait()
    elif at_most_s > 0 and not event.is_set():
        await first_of(event.wait(), clock.sleep(at_most_s))
    return event.is_set()


async def settled_within(clock: Clock, future: asyncio.Future[Any], at_most_s: float) -> bool:
    """Whether ``future`` is done within ``at_most_s`` seconds. It goes on if it is not, and if this is cancelled."""
    alarm = asyncio.create_task(clock.sleep(at_most_s), name="deadline")
    try:
        await asyncio.wait((future, alarm), return_when=asyncio.FIRST_COMPLETED)
    finally:
        alarm.cancel()
        await asyncio.gather(alarm, return_exceptions=True)
    return future.done()


def full_jitter_s(rng: Random, failures: int, base_s: float, cap_s: float) -> float:
    """Seconds to wait after ``failures`` failures in a row: uniform between 0 and the doubled base, capped.

    No failure, no wait. Full jitter spreads many clients that failed together.
    """
    if failures <= 0:
        return 0.0
    return rng.uniform(0.0, min(cap_s, base_s * 2.0 ** min(failures - 1, 32)))
