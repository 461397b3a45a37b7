"""What several tests of agents are given."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.config.schema import ClaudeSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.running import AgentContext
from tests.claude_desk import Desk, agent_env
from tests.modelserver.server import ModelServer
from tests.programs import require
from tests.walls import NoWalls


@pytest.fixture
async def desk(tmp_path: Path, git_repo: Path) -> AsyncIterator[Desk]:
    binary = require("claude")
    home = tmp_path / "home"
    home.mkdir()
    async with ModelServer() as model:
        env = agent_env(model)
        settings = ClaudeSection(binary=str(binary))
        backend = ClaudeBackend(settings, AgentContext(NoWalls(), SystemClock()), home, env)
        yield Desk(backend, model, git_repo, home)
        await backend.close()
