"""From a click on *Allow* until the agent continues: the workspace sends the click as Slack does, and the agent
reports when it has read the answer. In between are the journal, the worker's commit and the pipes.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

from bench.figures import Figure, limit, median
from bench.scene import BenchError, Pace, Scene, scene, whole_text

WARM_UP_TURNS = 2
ALLOW = "codebutler.allow"
TOLD = re.compile(r"went on (\d+\.\d+)")


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """One figure: the median over turns that ask once each."""
    waits: list[float] = []
    async with scene(place) as product:
        await product.supervise()
        for number in range(WARM_UP_TURNS + pace.turns):
            wait_ms = await _turn(product)
            if number >= WARM_UP_TURNS:
                waits.append(wait_ms)
            await asyncio.sleep(pace.pause_s)
    print(f"  click ms: {' '.join(f'{wait:.1f}' for wait in waits)}")
    return [limit("click on Allow → agent goes on, median", median(waits), 100)]


async def _turn(product: Scene) -> float:
    _, card = await product.asked("Please ask leave.", "Permission needed")
    # What the card itself caused is over then: marks, progress, receipts.
    await asyncio.sleep(0.5)
    server = product.server
    pressed = {"channel": server.channel_id(product.names[0]), "message_ts": card["ts"], "action_id": ALLOW}
    began_s = time.time()
    await server.interactions.click(server.workspace.person, pressed)
    root = card["thread_ts"]

    def look() -> re.Match[str] | None:
        said = server.thread(product.names[0], root)
        return next((found for each in said if (found := TOLD.search(whole_text(each)))), None)

    try:
        found = await server.until(look, 60.0)
    except TimeoutError:
        raise BenchError(f"the agent did not go on\n{product.output.read_text(errors='replace')}") from None
    return (float(found[1]) - began_s) * 1000
