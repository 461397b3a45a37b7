"""Some hundred messages through random faults; `make soak-cluster` sends ten thousand."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.nodefaults import survive


async def test_messages_through_random_faults_are_neither_lost_nor_doubled_nor_reordered(
    tmp_path: Path,
) -> None:
    """`SEED=…` repeats a run; a failure names it."""
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(10**6))
    faults = await survive(tmp_path, messages=200, seed=seed, pause_s=0.05, most=3)
    assert faults, f"seed {seed}: too fast for a fault"
