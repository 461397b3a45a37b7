"""The real Kimi Code with settings of its own instead of a key of ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from codebutler.config.schema import KimiSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.acp.backend import AcpBackend
from codebutler_worker.agents.acp.kimi import Kimi
from codebutler_worker.agents.backend import Finished, TurnRequest
from codebutler_worker.agents.running import AgentContext
from tests.modelserver.server import ModelServer, Reply
from tests.programs import path_with_node, require
from tests.walls import NoWalls

SETTINGS = """
default_model = "first"
telemetry = false
[providers.ours]
type = "kimi"
base_url = "{url}/v1"
api_key = "sk-of-the-user"
[models.first]
provider = "ours"
model = "first-model"
max_context_size = 262144
[models.second]
provider = "ours"
model = "second-model"
max_context_size = 262144
"""
DEADLINE_S = 90


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


async def finished(home: Path, repo: Path, model: str = "") -> Finished:
    settings = KimiSection(binary=str(require("kimi")), model=model)
    backend = AcpBackend(
        Kimi(settings, home, {"PATH": path_with_node()}), AgentContext(NoWalls(), SystemClock())
    )
    async with asyncio.timeout(DEADLINE_S):
        request = TurnRequest(turn_id="t", conversation="c", prompt="go", workdir=repo)
        events = [event async for event in backend.start(request)]
    await backend.close()
    assert isinstance(events[-1], Finished)
    return events[-1]


async def test_the_users_settings_and_the_configured_model_hold(
    tmp_path: Path, git_repo: Path, model: ModelServer
) -> None:
    code = tmp_path / ".kimi-code"
    code.mkdir()
    (code / "config.toml").write_text(SETTINGS.format(url=model.url))
    model.play(Reply("By the first."), Reply("By the second."))
    assert (await finished(tmp_path, git_repo)).text == "By the first."
    assert (await finished(tmp_path, git_repo, "second")).text == "By the second."
    assert [request["model"] for request in model.requests] == ["first-model", "second-model"]
    assert set(model.keys) == {"sk-of-the-user"}
    missing = await finished(tmp_path, git_repo, "third")
    assert (missing.ok, missing.reason) == (False, "failed")
    assert 'Model "third" is not configured' in missing.text


async def test_without_a_login_it_says_how_to_log_in(tmp_path: Path, git_repo: Path) -> None:
    nobody = await finished(tmp_path, git_repo)
    assert (nobody.ok, nobody.reason) == (False, "auth")
    assert "run `kimi login`" in nobody.text
    assert "kimi.apiKey" in nobody.text
