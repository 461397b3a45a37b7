"""Waiting for one of several things, without leaving the others behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


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
