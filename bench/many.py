"""Many repositories: from the start of `codebutler supervise` until the last worker is ready, and the memory of the
workers once each has answered its first message.
"""

from __future__ import annotations

from pathlib import Path

from bench.figures import Figure, limit
from bench.memory import everywhere, sizes
from bench.scene import Pace, scene

WORKED_REPOS = 50
WORKED_MB = 12


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Three figures; the first start creates every store."""
    async with scene(place / "many", pace.many_repos) as product:
        first_s = await product.supervise()
        await product.stop()
        again_s = await product.supervise()
    async with scene(place / "worked", WORKED_REPOS) as product:
        await product.supervise()
        await everywhere(product, "go", "answered")
        worked_mb = max(await sizes(product, pace.settle_s))
    print(f"  many: first start {first_s:.2f} s, next {again_s:.2f} s")
    return [
        limit(f"{pace.many_repos} repositories: first start to ready", first_s, 3, "s"),
        limit(f"{pace.many_repos} repositories: start to ready", again_s, 3, "s"),
        limit(
            f"memory of a worker after its first turn, largest of {WORKED_REPOS}", worked_mb, WORKED_MB, "MB"
        ),
    ]
