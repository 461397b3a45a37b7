"""The real Claude Code in a container, with a real docker daemon."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from codebutler.config.agent_sessions import claude_sessions
from codebutler.config.schema import ClaudeSection, SandboxSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import Finished, ToolResult, TurnRequest
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.egress.policy import for_agents
from codebutler_worker.sandbox.docker import DockerSandbox
from tests.dockerd import made_by
from tests.modelserver.server import Call, ModelServer, Reply
from tests.ordinary import give_away
from tests.programs import require


async def test_it_works_reaches_its_model_only_and_leaves_nothing(
    tmp_path: Path, git_repo: Path, docker_host: str
) -> None:
    binary = require("claude")
    home = tmp_path / "home"
    claude_sessions(home / ".claude", git_repo).mkdir(parents=True)
    (home / "diary").write_text("private")
    give_away(tmp_path)
    sandbox = DockerSandbox(host=docker_host)
    async with ModelServer() as model:
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
        context = AgentContext(sandbox, SystemClock(), for_agents(SandboxSection(), "docker", env))
        backend = ClaudeBackend(ClaudeSection(binary=str(binary)), context, home, env)
        script = (
            f"echo done > work.txt; cat {home}/diary; id -u; env | grep -c 'sk-ant-dumm[y]';"
            f"setsid sleep 1000 > /dev/null 2>&1 & python3 -c 'import urllib.request as u; u.urlopen(\"{model.url}\")'"
        )
        model.play(
            Reply("", (Call("Bash", {"command": script, "description": "a command"}),)), Reply("Finished.")
        )
        turn = TurnRequest(turn_id="t", conversation="c", prompt="go", workdir=git_repo, session_id=None)
        async with asyncio.timeout(90):
            events = [event async for event in backend.start(turn)]
        assert isinstance(events[-1], Finished)
        assert (events[-1].ok, events[-1].text) == (True, "Finished.")
        assert (git_repo / "work.txt").read_text() == "done\n"
        [said] = [event.text for event in events if isinstance(event, ToolResult)]
        assert "1000\n0\n" in said
        assert "private" not in said
        assert "Error" in said
        assert set(model.keys) == {"sk-ant-dummy"}
        await backend.close()
    await sandbox.close()
    assert made_by(docker_host, os.getpid()) == []
