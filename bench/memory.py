"""The memory of idle workers: proportional set size, as the running supervisor tells it.

A megabyte is 2**20 bytes, as `codebutler status` shows it. The more workers share their memory, the smaller each
one's part.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import BenchError, Pace, Scene, all_ready, scene


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """The largest of all workers, some seconds after they became ready: with new stores, then with known ones."""
    async with scene(place, pace.idle_repos) as product:
        new = await _sizes(product, pace.settle_s)
        await product.stop()
        known = await _sizes(product, pace.settle_s)
    print(f"  memory MB: new stores {_told(new)}; known stores {_told(known)}")
    return [
        limit(f"memory of an idle worker, largest of {len(known)}", max(known), 12, "MB"),
        limit("the same where its store has just been made", max(new), 12, "MB"),
    ]


async def _sizes(product: Scene, settle_s: float) -> list[float]:
    """Megabytes of each worker."""
    await product.supervise()
    await asyncio.sleep(settle_s)
    status = await product.until_status(all_ready)
    sizes = [repo["worker"]["pss_bytes"] for repo in status["repos"]]
    if None in sizes:
        raise BenchError("this system does not tell the proportional set size: measure on Linux")
    return [size / 2**20 for size in sizes]


def _told(sizes: list[float]) -> str:
    return " ".join(f"{size:.1f}" for size in sizes)
