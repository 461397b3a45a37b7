"""The tools in a container, with a real daemon."""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from codebutler.domain.clock import SystemClock
from codebutler_worker.sandbox.docker import DockerSandbox
from codebutler_worker.tools.editing import EDIT_FILE
from codebutler_worker.tools.programs import SandboxPrograms, tool_policy
from codebutler_worker.tools.reading import CODE_SEARCH, LIST_FILES, READ_FILES
from codebutler_worker.tools.running import RUN_TERMINAL_COMMAND
from codebutler_worker.tools.shell import ShellTerminal
from codebutler_worker.tools.tool import Context, Tool
from tests.dockerd import docker
from tests.integration.tools.conftest import call
from tests.ordinary import give_away


async def test_everything_works_in_a_container_too(docker_host: str, git_repo: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (git_repo / ".codebutler").mkdir(mode=0o700)
    give_away(tmp_path)
    sandbox = DockerSandbox(host=docker_host)
    policy = tool_policy(git_repo, tmp_path / "home", "/usr/bin:/bin", {}, "C1:1.0")
    terminal = ShellTerminal(sandbox, replace(policy, own_terminal=True), SystemClock())
    context = Context(
        workdir=git_repo,
        turn_id="t1",
        conversation="C1:1.0",
        programs=SandboxPrograms(sandbox, policy),
        terminal=terminal,
    )

    async def text(tool: Tool, **arguments: object) -> str:
        return (await call(tool, context, json.dumps(arguments))).text

    assert await text(LIST_FILES) == "README.md\nsrc/app.py"
    assert "exit code 0" in await text(RUN_TERMINAL_COMMAND, command="cd src && A=kept")
    assert '+    return f"hi {name}"' in await text(EDIT_FILE, path="src/app.py", old="hello", new="hi")
    assert '2\t    return f"hi {name}"' in await text(READ_FILES, paths=["src/app.py"])
    assert await text(CODE_SEARCH, pattern="greet") == "src/app.py:1:def greet(name):"
    begun = await text(RUN_TERMINAL_COMMAND, command="cat app.py; echo $A; sleep 300", wait_s=1)
    assert "still running" in begun
    assert "exit code 130" in await text(RUN_TERMINAL_COMMAND, signal="CTRL_C", wait_s=60)
    said = await call(RUN_TERMINAL_COMMAND, context, '{"command": "true"}')
    assert said.container in docker(docker_host, "ps", "--format", "{{.Names}}").split()
    await terminal.close()
    await sandbox.close()
