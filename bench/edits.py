"""How often working agents call Slack: one run alone, then twenty at once, each with a tool call every 0.3 s.

The workspace counts every call, and those that Slack would have refused.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import DEADLINE_S, BenchError, Pace, Scene, scene

TURNS = 20
EDITS_PER_MINUTE = 20
FINAL = "white_check_mark"


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Three figures."""
    async with scene(place, TURNS) as product:
        await product.supervise()
        alone = await _edits_per_minute(product, 1, pace.busy_s)
        together = await _edits_per_minute(product, TURNS, pace.busy_s)
        refused = product.server.limits.violations
    print(f"  edits: calls {dict(product.server.limits.calls)}; beyond Slack's limits {dict(refused)}")
    what = f"{TURNS} turns at once"
    return [
        limit("one turn: edits a minute", alone, EDITS_PER_MINUTE, "edits"),
        limit(f"{what}: edits a minute for each", together / TURNS, EDITS_PER_MINUTE, "edits"),
        limit(f"{what}: calls beyond Slack's limits", refused.total(), 0, "calls"),
    ]


async def _edits_per_minute(product: Scene, turns: int, busy_s: int) -> float:
    """Let as many agents work at once, in a channel each; returns the edits of all of them."""
    calls = product.server.limits.calls
    before, began_s = calls["chat.update"], time.monotonic()
    asked = {name: product.server.say(name, f"work for {busy_s} seconds") for name in product.names[:turns]}
    await asyncio.sleep(busy_s)
    per_minute = (calls["chat.update"] - before) * 60 / (time.monotonic() - began_s)
    for name, ts in asked.items():
        await _answered(product, name, ts)
    return per_minute


async def _answered(product: Scene, name: str, ts: str) -> None:
    def look() -> bool:
        (message, *_) = product.server.thread(name, ts)
        return FINAL in {mark["name"] for mark in message.get("reactions", [])}

    try:
        # Twenty turns that end at once share what Slack grants in a minute.
        await product.server.until(look, DEADLINE_S * 2)
    except TimeoutError:
        raise BenchError(f"no outcome in {name}: {product.server.thread(name, ts)}") from None
