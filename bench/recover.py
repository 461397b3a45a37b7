"""The supervisor is killed (SIGKILL) and started again at once: how long until a message is answered again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from bench.figures import Figure, limit, median
from bench.scene import DEADLINE_S, BenchError, Pace, Scene, all_ready, scene, whole_text

REPOS = 20
PING_S = 0.1


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """The median over some deaths; each time a person in another channel asks until there is an answer."""
    taken: list[float] = []
    async with scene(place, REPOS) as product:
        await product.supervise()
        for number in range(pace.rounds):
            taken.append(await _recovery(product, product.names[-1 - number % REPOS]))
            await product.until_status(all_ready)
            await asyncio.sleep(pace.pause_s)
    print(f"  recover s: {' '.join(f'{value:.2f}' for value in taken)}")
    return [
        limit(f"{REPOS} repositories: SIGKILL of the supervisor → next answer, median", median(taken), 3, "s")
    ]


async def _recovery(product: Scene, name: str) -> float:
    """Seconds from the kill to the first answer, to whichever question it is."""
    assert product.supervisor is not None
    killed_s = time.time()
    product.supervisor.kill()
    await asyncio.to_thread(product.supervisor.wait)
    starting = asyncio.create_task(product.supervise(), name="supervise")
    asked: list[str] = []
    try:
        while time.time() - killed_s < DEADLINE_S:
            asked.append(product.server.say(name, "!ping"))
            await asyncio.sleep(PING_S)
            if answers := [at_s for ts in asked if (at_s := _answered(product, name, ts)) is not None]:
                return min(answers) - killed_s
    finally:
        await starting
    raise BenchError(f"nobody answered in {name} within {DEADLINE_S:g} s")


def _answered(product: Scene, name: str, ts: str) -> float | None:
    """When the answer came (Unix time); None while there is none."""
    for message in product.server.thread(name, ts):
        if message.get("bot_id") and "pong" in whole_text(message).lower():
            return float(message["ts"])
    return None
