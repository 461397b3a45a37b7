"""What docker adds to each command of a conversation, and how many attacks on the sandbox were stopped.

The daemon is the tests' own; a machine where it cannot run has neither figure.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
from pathlib import Path

from bench.figures import Figure, limit, median
from bench.scene import BenchError, Pace
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.sandbox.port import SandboxPolicy
from tests.containers import execute
from tests.dockerd import shared_dockerd
from tests.ordinary import give_away

PROGRAM = ("/bin/true",)
ATTACKS = "tests/integration/sandbox/test_attacks.py"


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """The median of commands in a warm container, and the battery's score."""
    if os.geteuid() != 0:
        raise BenchError("a docker daemon of one's own needs root")
    place.mkdir(parents=True)
    with shared_dockerd(place / "dockerd") as host:
        warm = await _commands(place, host, pace.helps * 5)
    tried, stopped = await _attacks()
    print(f"  attacks: {tried} tried, {stopped} stopped")
    return [
        limit("docker: a command in a warm container, median", median(warm), 100),
        limit(f"attacks not stopped, of {tried}", tried - stopped, 0, "attacks"),
    ]


async def _commands(place: Path, host: str, count: int) -> list[float]:
    repo, home = place / "repo", place / "home"
    for directory in (repo, home):
        directory.mkdir()
        give_away(directory)
    sandbox = DockerSandbox(host=host)
    policy = SandboxPolicy(
        workdir=repo, home=home, env={"PATH": "/usr/bin:/bin"}, network="none", conversation="c"
    )
    times = []
    try:
        for _ in range(count + 1):
            began_s = time.monotonic()
            code, _, err = await execute(sandbox.wrap(PROGRAM, policy))
            if code != 0:
                raise BenchError(f"{PROGRAM[0]} failed: {err.decode(errors='replace')}")
            times.append((time.monotonic() - began_s) * 1000)
    finally:
        await sandbox.close()
    print(f"  the first one, with its container: {times[0]:.0f} ms")
    return times[1:]


async def _attacks() -> tuple[int, int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-q", ATTACKS), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    told = re.search(r"attacks: (\d+) tried, (\d+) stopped", out.decode())
    if told is None:
        raise BenchError(f"the battery did not run: {out.decode()[-500:]}")
    return int(told[1]), int(told[2])
