"""What the sandbox adds to each command: the same program with and without it, alternating.

Behind bubblewrap with this machine's network, as the commands of people have it; without any, as git and the tools of
our own agents; and with hosts it may reach, as agents and checks: there an interpreter hands out a socket before the
program starts. Nothing of that stays, so it costs no memory.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from bench.figures import Figure, limit, median
from bench.scene import BenchError, Pace
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.port import Launch, SandboxPolicy
from tests.ordinary import give_away

PROGRAM = ("/bin/true",)
ENV = {"PATH": "/usr/bin:/bin"}
ROUNDS_PER_HELP = 5


async def measure(place: Path, pace: Pace) -> list[Figure]:
    """Three figures: medians of the differences within each round."""
    repo, home = place / "repo", place / "home"
    _make(repo, home)
    try:
        sandbox = BwrapSandbox()
        await sandbox.self_test()
    except SandboxUnavailableError as error:
        raise BenchError(str(error)) from error
    policy = SandboxPolicy(workdir=repo, home=home, env=ENV, network="none")
    opened: list[float] = []
    closed: list[float] = []
    proxied: list[float] = []
    for _ in range(pace.helps * ROUNDS_PER_HELP):
        plain_ms = await _run(partial(Launch, PROGRAM, ENV, repo))
        opened.append(await _run(partial(sandbox.wrap, PROGRAM, replace(policy, network="open"))) - plain_ms)
        closed.append(await _run(partial(sandbox.wrap, PROGRAM, policy)) - plain_ms)
        async with await NetworkPolicy("hosts", ("example.org",), sandboxed=True).open(repo) as access:
            out = replace(policy, network=access.network)
            proxied.append(await _run(partial(sandbox.wrap, PROGRAM, out)) - plain_ms)
    return [
        limit("bubblewrap's overhead per command of a person, median", median(opened), 10),
        limit("the same without network (git, tools), median", median(closed), 10),
        limit("the same with a proxy (agents, checks), median", median(proxied), 15),
    ]


def _make(repo: Path, home: Path) -> None:
    for directory in (repo, home):
        directory.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    # As root it is the owner's programs that are measured, which costs another start.
    for directory in (repo, home):
        give_away(directory)


async def _run(prepare: Callable[[], Launch]) -> float:
    """Milliseconds from the wish to run it to its end."""
    began_s = time.monotonic()
    launch = prepare()
    process = await asyncio.create_subprocess_exec(*launch.argv, cwd=launch.cwd, env=launch.env)
    if await process.wait() != 0:
        raise BenchError(f"{launch.argv[0]} failed: {process.returncode}")
    return (time.monotonic() - began_s) * 1000
