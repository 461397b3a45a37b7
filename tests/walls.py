"""Sandboxes without walls, for tests of what stands behind them; and programs inside those that have some."""

from __future__ import annotations

import asyncio

from codebutler_worker.sandbox.none import NoSandbox
from codebutler_worker.sandbox.port import Launch, SandboxPolicy


class NoWalls:
    """Passes everything through; it calls itself a sandbox, so that root may skip an agent's permissions."""

    name = "test"

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        return Launch(argv, policy.env, policy.workdir)

    async def self_test(self) -> None:
        return


def as_it_is() -> NoSandbox:
    """What an ordinary user gets without walls, for tests that root runs in directories of its own."""
    return NoSandbox(uid=1000)


async def ended(launch: Launch) -> tuple[int, str]:
    """The exit code of a program that is told nothing, and all it said."""
    process = await asyncio.create_subprocess_exec(
        *launch.argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=launch.cwd,
        env=launch.env,
    )
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()
