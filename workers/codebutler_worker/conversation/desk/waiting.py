"""Waiting for an event, but no longer than a while on the given clock."""

from __future__ import annotations

import asyncio

from codebutler.clock import Clock


async def wait_for(clock: Clock, event: asyncio.Event, at_most_s: float | None) -> bool:
    """True if the event came; False if ``at_most_s`` seconds passed first (None = wait for ever)."""
    if at_most_s is None or event.is_set():
        await event.wait()
        return True
    waits = [asyncio.create_task(event.wait()), asyncio.create_task(clock.sleep(at_most_s))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return event.is_set()
