"""Sandboxes for tests of what stands behind them; and programs inside those that have walls.

What root's tests have laid out there becomes the ordinary user's just before a program starts: agents are never root.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.port import Launch, SandboxPolicy
from codebutler_worker.sandbox.select import NoSandbox
from tests.ordinary import ORDINARY_ID, give_home_away, give_repository_away
from tests.programs import require


class AsItIs(NoSandbox):
    """What an agent gets without walls."""

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        _hand_over(policy)
        return super().wrap(argv, policy)


class Walled(BwrapSandbox):
    """What it gets in bubblewrap."""

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        _hand_over(policy)
        return super().wrap(argv, policy)


class NoWalls(AsItIs):
    """Adds nothing to the environment either; it calls itself a sandbox."""

    name = "test"

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        return replace(super().wrap(argv, policy), env=policy.env)


def as_it_is() -> NoSandbox:
    """No walls."""
    return AsItIs()


def walled(*hidden: Path) -> BwrapSandbox:
    """Bubblewrap, which has to be there."""
    return Walled(hidden, program=require("bwrap"))


def _hand_over(policy: SandboxPolicy) -> None:
    if policy.workdir.is_dir():
        give_repository_away(policy.workdir, policy.workdir.stat().st_uid or ORDINARY_ID)
    give_home_away(policy.home, policy.workdir)


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
