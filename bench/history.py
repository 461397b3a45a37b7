"""A home with a long history: how soon it is connected and answers, and its worker's memory after a run."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, limit
from bench.past import live_through
from bench.scene import DEADLINE_S, BenchError, Pace, Scene, all_ready, scene

FEW = 1_000
GROWTH_MB = 1.0


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """The same repository with few messages and with many."""
    few = await _measured(place / "few", FEW, pace)
    many = await _measured(place / "many", pace.past_turns, pace)
    print(f"  {FEW:,} messages: {few}\n  {pace.past_turns:,} messages: {many}")
    what = f"{pace.past_turns:,} messages of history"
    return [
        limit(f"{what}: connected after the start", many.connected_s, 2, "s"),
        limit(f"{what}: first answer after the start", many.answered_s, 3, "s"),
        limit(f"{what}: the worker's memory beside {FEW:,}", many.worker_mb - few.worker_mb, GROWTH_MB, "MB"),
    ]


@dataclass(frozen=True)
class _Start:
    """A start after so many messages."""

    connected_s: float
    answered_s: float
    worker_mb: float


async def _measured(place: Path, turns: int, pace: Pace) -> _Start:
    async with scene(place) as product:
        await product.supervise()
        _, answer = await product.asked("go", "answered")
        await product.server.until(lambda: _is_done(product, answer["thread_ts"]), DEADLINE_S)
        await product.stop()
        live_through(product, product.names[0], turns)
        began_s = time.time()
        await product.supervise(lambda status: status["slack"]["state"] == "connected")
        connected_s = time.time() - began_s
        _, pong = await product.asked("!ping", "pong")
        answered_s = float(pong["ts"]) - began_s
        await product.asked("go", "answered")
        await asyncio.sleep(pace.settle_s)
        row = (await product.until_status(all_ready))["repos"][0]["worker"]
        if row["pss_bytes"] is None:
            raise BenchError("this system does not tell the proportional set size: measure on Linux")
        return _Start(connected_s, answered_s, row["pss_bytes"] / 2**20)


def _is_done(product: Scene, ts: str) -> bool:
    channel = product.server.workspace.channel(product.server.channel_id(product.names[0]))
    return list(channel.messages[ts].reactions) == ["white_check_mark"]
