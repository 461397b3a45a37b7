"""Many repositories: from the start of `codebutler supervise` to the last worker's being ready."""

from __future__ import annotations

from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import Pace, scene


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """One figure: the second start, since the first one creates every store."""
    async with scene(place, pace.many_repos) as product:
        first_s = await product.supervise()
        await product.stop()
        again_s = await product.supervise()
    print(f"  many: first start {first_s:.2f} s, next {again_s:.2f} s")
    return [
        limit(f"{pace.many_repos} repositories: first start to ready", first_s, 3, "s"),
        limit(f"{pace.many_repos} repositories: start to ready", again_s, 3, "s"),
    ]
