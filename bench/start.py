"""How long a command takes that only prints its help."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.figures import Figure, limit, median
from bench.scene import Pace, command


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """The median over some runs."""
    place.mkdir(parents=True)
    taken = [_help(place) for _ in range(pace.helps)]
    return [limit("codebutler --help, median", median(taken), 200)]


def _help(place: Path) -> float:
    began_s = time.monotonic()
    subprocess.run(command("--help"), cwd=place, check=True, capture_output=True)
    return (time.monotonic() - began_s) * 1000
