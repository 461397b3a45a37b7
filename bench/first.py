"""The first reaction: from a message to the status line under it (👀 comes after a second of work), and from a command
to its answer.

Neither may wait for what else goes on: the debounce before a turn, a turn that runs, a worker that sleeps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import Figure, limit, median
from bench.scene import DEADLINE_S, BenchError, Pace, Scene, scene

DEBOUNCE_S = 1.0
IDLE_SLEEP_MINUTES = 0.025
SIGN_MS, ANSWER_MS = 300, 200


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Two figures: the slowest of the medians of an idle repository, a busy one and one whose worker sleeps."""
    async with scene(place / "awake", debounce_s=DEBOUNCE_S) as product:
        await product.supervise()
        idle = await _signs(product, pace)
        product.server.say(product.names[0], "work for 600 seconds")
        await asyncio.sleep(DEBOUNCE_S + pace.pause_s)
        busy = await _signs(product, pace)
    async with scene(
        place / "asleep", debounce_s=DEBOUNCE_S, idle_sleep_minutes=IDLE_SLEEP_MINUTES
    ) as product:
        await product.supervise()
        asleep = await _signs(product, pace, sleeps=True)
    found = {"idle": idle, "busy": busy, "asleep": asleep}
    for what, (signs, answers) in found.items():
        print(f"  {what} ms: first sign {_told(signs)}; !status {_told(answers)}")
    return [
        limit("message → first sign, median", max(median(each[0]) for each in found.values()), SIGN_MS),
        limit("!status → its answer, median", max(median(each[1]) for each in found.values()), ANSWER_MS),
    ]


async def _signs(product: Scene, pace: Pace, *, sleeps: bool = False) -> tuple[list[float], list[float]]:
    """Milliseconds to the first sign, and to the answer of a command, of several messages each."""
    signs: list[float] = []
    answers: list[float] = []
    for _ in range(pace.wakes):
        for taken, measured in ((signs, _sign), (answers, _answer)):
            if sleeps:
                await product.until_status(lambda status: status["repos"][0]["worker"]["state"] == "sleeping")
            else:
                await asyncio.sleep(DEBOUNCE_S + pace.pause_s)
            taken.append(await measured(product))
    return signs, answers


async def _sign(product: Scene) -> float:
    ts = product.server.say(product.names[0], "What is here?")
    shown = product.server.context.statuses
    return await _seen(product, ts, lambda thread: len(thread) > 1 or any(where == ts for _, where in shown))


async def _answer(product: Scene) -> float:
    ts = product.server.say(product.names[0], "!status")
    return await _seen(product, ts, lambda thread: len(thread) > 1)


async def _seen(product: Scene, ts: str, has: Callable[[list[dict[str, Any]]], bool]) -> float:
    """Milliseconds until the thread shows it."""
    name = product.names[0]
    try:
        await product.server.until(lambda: has(product.server.thread(name, ts)), DEADLINE_S)
    except TimeoutError:
        raise BenchError(f"no sign of life: {product.output.read_text(errors='replace')}") from None
    return (time.time() - float(ts)) * 1000


def _told(values: list[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)
