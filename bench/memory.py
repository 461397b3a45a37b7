"""The memory of idle workers: proportional set size, as the running supervisor tells it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import BenchError, Pace, all_ready, scene


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """The greatest of all workers, some seconds after they became ready."""
    async with scene(place, pace.idle_repos) as product:
        await product.supervise()
        await asyncio.sleep(pace.settle_s)
        status = await product.until_status(all_ready)
    sizes = [repo["worker"]["pss_bytes"] for repo in status["repos"]]
    if None in sizes:
        raise BenchError("this system does not tell the proportional set size: measure on Linux")
    print(f"  memory MB: {' '.join(f'{size / 1e6:.1f}' for size in sizes)}")
    return [limit(f"memory of an idle worker, the largest of {len(sizes)}", max(sizes) / 1e6, 12, "MB")]
