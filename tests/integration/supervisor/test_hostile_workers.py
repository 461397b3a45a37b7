"""Real workers that mean harm, each beside a parent of its own: what the parent holds stays small."""

from __future__ import annotations

import sys

import pytest

from bench.hostile import DEEDS, MOST_MB, run

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@needs_proc
@pytest.mark.parametrize("deed", DEEDS)
async def test_the_parent_stays_small_and_keeps_what_others_logged(deed: str) -> None:
    told = await run(deed, 2)
    assert told.peak_mb < MOST_MB
    assert told.others_left == 1
