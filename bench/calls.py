"""How many of Slack's rate-limited calls a run needs: those that post, edit and mark."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import Pace, Scene, scene

SCARCE = ("chat.", "reactions.")
TOOLS = 20
SHORT_CALLS, LONG_CALLS = 2, 12


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Of a short turn, and of a long one that uses tools."""
    async with scene(place) as product:
        await product.supervise()
        await _cost(product, pace, "Answer at once.")
        short = await _cost(product, pace, "Answer at once.")
        long = await _cost(product, pace, f"use {TOOLS} tools in {pace.busy_s} seconds, then answer")
    print(f"  calls: a short turn {dict(short)}; a long one {dict(long)}")
    what = f"scarce calls of a turn of {pace.busy_s} s with {TOOLS} tools"
    return [
        limit("scarce calls of a short turn", short.total(), SHORT_CALLS, "calls"),
        limit(what, long.total(), LONG_CALLS, "calls"),
    ]


async def _cost(product: Scene, pace: Pace, text: str) -> Counter[str]:
    """The calls from the message until nothing follows any more."""
    before = product.server.limits.calls.copy()
    await product.finished(product.server.say(product.names[0], text), 2 * pace.busy_s)
    await asyncio.sleep(2 * pace.pause_s)
    spent = product.server.limits.calls - before
    return Counter({method: number for method, number in spent.items() if method.startswith(SCARCE)})
