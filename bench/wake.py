"""A sleeping worker: the memory it holds, and how much later than a running one it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.figures import Figure, limit, median
from bench.scene import Pace, Scene, scene

IDLE_SLEEP_MINUTES = 0.025


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Its processes' memory, and from the event to the answer, with the awake worker's time for comparison."""
    asleep: list[float] = []
    awake: list[float] = []
    async with scene(place, idle_sleep_minutes=IDLE_SLEEP_MINUTES) as product:
        await product.supervise()
        for _ in range(pace.wakes):
            status = await product.until_status(_sleeps)
            asleep.append(await _ping(product))
            awake.append(await _ping(product))
    print(f"  wake ms: asleep {_told(asleep)}; awake {_told(awake)}")
    worker = status["repos"][0]["worker"]
    return [
        limit("wake a sleeping worker: event → answer, median", median(asleep), 150),
        limit(
            "memory of a sleeping worker",
            0 if worker["pid"] is None else worker["pss_bytes"] / 2**20,
            0,
            "MB",
        ),
    ]


def _sleeps(status: dict[str, Any]) -> bool:
    return bool(status["repos"][0]["worker"]["state"] == "sleeping")


async def _ping(product: Scene) -> float:
    """Milliseconds from the message to the call that answers it."""
    said_s, reply = await product.asked("!ping", "")
    return (float(reply["ts"]) - said_s) * 1000


def _told(values: list[float]) -> str:
    return " ".join(f"{value:.1f}" for value in values)
