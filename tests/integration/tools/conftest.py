"""Tools at work: behind real walls, and without any."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from codebutler.domain.clock import SystemClock
from codebutler_worker.sandbox.port import Sandbox
from codebutler_worker.tools.programs import SandboxPrograms, tool_policy
from codebutler_worker.tools.repair import parse_arguments
from codebutler_worker.tools.shell import ShellTerminal
from codebutler_worker.tools.tool import Context, Result, Tool, ToolError
from tests.walls import as_it_is, walled

PATH = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(params=["bwrap", "none"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return as_it_is() if request.param == "none" else walled()


@pytest.fixture
async def context(sandbox: Sandbox, git_repo: Path, tmp_path: Path) -> AsyncIterator[Context]:
    home = tmp_path / "home"
    home.mkdir()
    env = {
        "NATIVE_API_KEY": "sk-not-for-tools",
        "KIMI_API_KEY": "sk-not-for-tools",
        "PATH": os.environ["PATH"],
    }
    policy = tool_policy(git_repo, home, PATH, env, "C1:1.0")
    terminal = ShellTerminal(sandbox, replace(policy, own_terminal=True), SystemClock())
    yield Context(
        workdir=git_repo,
        turn_id="t1",
        conversation="C1:1.0",
        programs=SandboxPrograms(sandbox, policy),
        terminal=terminal,
    )
    await terminal.close()


async def call(tool: Tool, context: Context, arguments: str) -> Result:
    """As the agent does it: a ToolError is a result that says no."""
    try:
        return await tool.run(context, parse_arguments(tool, arguments)[0])
    except ToolError as error:
        return Result(str(error), ok=False)
