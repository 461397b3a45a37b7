"""Whether the doctor finds out that the way out works, and that it does not."""

from __future__ import annotations

import pytest

from codebutler.config.schema import SandboxSection
from codebutler.domain.errors import SandboxUnavailableError
from codebutler_worker.egress.policy import for_agents, try_network_access
from codebutler_worker.sandbox.bwrap import BwrapSandbox
from codebutler_worker.sandbox.port import Launch, SandboxPolicy
from tests.programs import require
from tests.walls import walled


class WithoutPython(BwrapSandbox):
    """On a machine whose interpreter is broken."""

    def wrap(self, argv: tuple[str, ...], policy: SandboxPolicy) -> Launch:
        launch = super().wrap(argv, policy)
        broken = ("/bin/sh", "-c", "echo no such module >&2; exit 1")
        return Launch((*launch.argv[: launch.argv.index("--") + 1], *broken), launch.env, launch.cwd)


async def test_where_it_works_nothing_is_said() -> None:
    require("python3")
    network_policy = for_agents(SandboxSection(), "bwrap", {})
    await try_network_access(walled(), network_policy)


async def test_where_it_does_not_what_to_do_is_said() -> None:
    network_policy = for_agents(SandboxSection(), "bwrap", {})
    with pytest.raises(
        SandboxUnavailableError, match=r"cannot reach their model \(no such module\): reinstall perl"
    ):
        await try_network_access(WithoutPython(program=require("bwrap")), network_policy)
