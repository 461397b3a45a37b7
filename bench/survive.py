"""Half a minute of `make soak`: how many messages were lost, doubled or out of order, which must be none."""

from __future__ import annotations

from pathlib import Path

from bench.figures import Figure, limit
from bench.scene import Pace
from tests.soak.plan import short
from tests.soak.run import soak


async def measure(place: Path, pace: Pace) -> list[Figure]:  # noqa: ARG001 - it has its own pace
    """Counts, each held to 0."""
    place.mkdir(parents=True)
    outcome = await soak(short(), place)
    survived = sum(outcome.survived(kind) for kind in {tried.kind for tried in outcome.tried})
    tried, messages = len(outcome.tried), outcome.messages
    return [
        Figure(what="faults tried", measured=tried, against=survived, against_what="survived", unit=""),
        limit(f"messages lost, of {messages}", outcome.count("lost"), 0, ""),
        limit("answers or work doubled", outcome.count("doubled"), 0, ""),
        limit("messages out of order", outcome.count("disordered"), 0, ""),
        limit("processes left behind", len(outcome.left_behind), 0, ""),
    ]
