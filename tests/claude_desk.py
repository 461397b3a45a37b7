"""The real Claude Code at the tests' own model server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from codebutler.config.schema import ClaudeSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import (
    AgentEvent,
    Finished,
    TurnRequest,
)
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.process import TimeLimits
from codebutler_worker.agents.running import AgentContext
from tests.modelserver.server import Call, ModelServer
from tests.walls import NoWalls

E = TypeVar("E")


@dataclass(slots=True)
class Desk:
    """One backend at its model server, and how the tests talk to it."""

    backend: ClaudeBackend
    model: ModelServer
    repo: Path
    home: Path

    def turn(self, prompt: str, **more: str | float | None) -> TurnRequest:
        request = TurnRequest(turn_id="t1", conversation="c1", prompt=prompt, workdir=self.repo)
        return replace(request, **more)  # type: ignore[arg-type]  # the tests name real fields

    async def run(self, prompt: str, **more: str | float | None) -> list[AgentEvent]:
        async with asyncio.timeout(60):
            return [event async for event in self.backend.start(self.turn(prompt, **more))]

    def with_settings(self, settings: ClaudeSection, limits: TimeLimits | None = None) -> Desk:
        env = agent_env(self.model)
        backend = ClaudeBackend(settings, AgentContext(NoWalls(), SystemClock()), self.home, env, limits)
        return dataclasses.replace(self, backend=backend)


def agent_env(model: ModelServer) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": "sk-ant-dummy",
        "CLAUDE_CODE_MAX_RETRIES": "1",
    }


def bash(command: str) -> Call:
    return Call("Bash", {"command": command, "description": "a command"})


def one(events: list[AgentEvent], kind: type[E]) -> E:
    found = [event for event in events if isinstance(event, kind)]
    assert len(found) == 1, events
    return found[0]


def last(events: list[AgentEvent]) -> Finished:
    assert [type(event) for event in events].count(Finished) == 1
    assert isinstance(events[-1], Finished)
    return events[-1]


async def until(events: AsyncIterator[AgentEvent], kind: type[AgentEvent]) -> AgentEvent:
    async for event in events:
        if isinstance(event, kind):
            return event
    raise AssertionError(f"no {kind.__name__}")


def replace_section(desk: Desk, **changes: object) -> ClaudeSection:
    return msgspec.structs.replace(desk.backend._settings, **changes)
