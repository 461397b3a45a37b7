"""How long to wait before trying again. Pure."""

from __future__ import annotations

from random import Random


def full_jitter_s(rng: Random, failures: int, base_s: float, cap_s: float) -> float:
    """Seconds to wait after ``failures`` failures in a row: uniform between 0 and the doubled base, capped.

    No failure, no wait. Full jitter spreads many clients that failed together.
    """
    if failures <= 0:
        return 0.0
    return rng.uniform(0.0, min(cap_s, base_s * 2.0 ** min(failures - 1, 32)))
