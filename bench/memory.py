"""The memory of waiting workers: proportional set size, as the running supervisor reports it.

A megabyte is 2**20 bytes, as `codebutler status` shows it. The more workers share their memory, the smaller each
one's part; what a worker has once written to is its own from then on, so what it has done counts too.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import BenchError, Pace, Scene, all_ready, scene


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """The largest of all workers, some seconds after they became ready: with new stores, then with known ones,
    then when each has answered a command. What a turn leaves is told here, and held to its limit by `many`."""
    async with scene(place, pace.idle_repos) as product:
        await product.supervise()
        new = await sizes(product, pace.settle_s)
        await product.stop()
        await product.supervise()
        known = await sizes(product, pace.settle_s)
        await everywhere(product, "!ping", "pong")
        commanded = await sizes(product, pace.settle_s)
        await everywhere(product, "go", "answered")
        worked = await sizes(product, pace.settle_s)
    print(f"  memory MB: new stores {_told(new)}; known stores {_told(known)}")
    print(f"  after a command {_told(commanded)}; after a turn {_told(worked)}")
    return [
        limit(f"memory of an idle worker, largest of {len(known)}", max(known), 12, "MB"),
        limit("the same where its store has just been made", max(new), 12, "MB"),
        limit("the same when it has answered a command", max(commanded), 12, "MB"),
    ]


async def everywhere(product: Scene, text: str, answered: str) -> None:
    """Ask all of them at once, and wait for their answers."""
    await asyncio.gather(*(product.asked(text, answered, name) for name in product.names))


async def sizes(product: Scene, settle_s: float) -> list[float]:
    """Megabytes of each worker, after ``settle_s``."""
    await asyncio.sleep(settle_s)
    status = await product.until_status(all_ready)
    found = [repo["worker"]["pss_bytes"] for repo in status["repos"]]
    if None in found:
        raise BenchError("this system does not tell the proportional set size: measure on Linux")
    return [size / 2**20 for size in found]


def _told(values: list[float]) -> str:
    return " ".join(f"{size:.1f}" for size in values)
