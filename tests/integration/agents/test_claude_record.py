"""What the real Claude Code writes is recorded as it came, and a thread's session is found under its name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

import pytest

from codebutler.config.schema import ClaudeSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import AgentEvent, Finished, Started, TurnRequest
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.session_logs import SESSIONS, SessionLogs
from codebutler_worker.store.opening import prepare_state_dir
from tests.modelserver.server import ModelServer, Reply
from tests.programs import require
from tests.walls import NoWalls

NAME = "chat-C1-100.1"
DEADLINE_S = 60.0


@dataclass
class Rig:
    backend: ClaudeBackend
    model: ModelServer
    repo: Path

    async def run(self, turn_id: str, session_id: str | None = None, name: str = "") -> list[AgentEvent]:
        self.model.play(Reply("Heard."))
        request = TurnRequest(
            turn_id=turn_id,
            conversation="c",
            prompt="hi",
            workdir=self.repo,
            session_id=session_id,
            session_name=name,
        )
        async with asyncio.timeout(DEADLINE_S):
            return [event async for event in self.backend.start(request)]


@pytest.fixture
async def rig(tmp_path: Path, git_repo: Path) -> AsyncIterator[Rig]:
    prepare_state_dir(git_repo)
    home = tmp_path / "claude-home"
    home.mkdir()
    async with ModelServer() as model:
        env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
        settings = ClaudeSection(binary=str(require("claude")))
        context = AgentContext(NoWalls(), SystemClock(), logs=SessionLogs(git_repo, 30))
        backend = ClaudeBackend(settings, context, home, env)
        yield Rig(backend, model, git_repo)
        await backend.close()


def started(events: list[AgentEvent]) -> str:
    return next(event.session_id for event in events if isinstance(event, Started))


async def test_the_raw_stream_is_recorded_and_the_last_line_says_how_it_went(rig: Rig) -> None:
    events = await rig.run("aaaaaaaabbbb")
    assert isinstance(events[-1], Finished)
    lines = (rig.repo / SESSIONS / "aaaaaaaa.log").read_text().splitlines()
    kinds = [json.loads(line)["type"] for line in lines if line.startswith("{")]
    assert "assistant" in kinds
    assert "result" in kinds
    assert lines[-1].startswith("--- session aaaaaaaa ended ")
    assert "status=done duration_s=" in lines[-1]


async def test_a_threads_session_has_the_threads_id_and_after_a_reset_another(rig: Rig) -> None:
    expected = str(uuid5(NAMESPACE_URL, NAME))
    assert started(await rig.run("t1", name=NAME)) == expected
    assert started(await rig.run("t2", session_id=expected)) == expected
    again = started(await rig.run("t3", name=f"{NAME}-2"))
    assert again == str(uuid5(NAMESPACE_URL, f"{NAME}-2"))


async def test_a_name_that_was_used_before_costs_no_turn(rig: Rig) -> None:
    first = started(await rig.run("t1", name=NAME))
    events = await rig.run("t2", name=NAME)
    assert started(events) != first
    assert isinstance(events[-1], Finished)
    assert events[-1].ok
