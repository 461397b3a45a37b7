"""The native agent with a scripted model, over a real repository and without walls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from codebutler.config.schema import Config, NativeSection
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.backend import AgentEvent, Answer, Started, TurnRequest
from codebutler_worker.agents.native.backend import Habits, NativeBackend, tools
from codebutler_worker.agents.native.loop import LoopLimits
from codebutler_worker.agents.native.model import (
    AssistantMessage,
    Model,
    ModelReply,
    TokenCount,
    ToolCall,
    ToolMessage,
)
from codebutler_worker.agents.native.sessions import NativeSessions
from codebutler_worker.agents.native.turn import Thinker
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.session_logs import SessionLogs
from codebutler_worker.egress.policy import NetworkPolicy
from codebutler_worker.sandbox.port import Sandbox, SandboxPolicy
from codebutler_worker.tools.programs import tool_policy
from tests.scriptedmodel import Line, ScriptedModel
from tests.walls import as_it_is

DEADLINE_S = 60
PATH = "/usr/local/bin:/usr/bin:/bin"


def says(
    text: str = "", *calls: tuple[str, dict[str, Any]], tokens: int = 100, call_id: str = "call"
) -> ModelReply:
    """An answer of the model."""
    made = tuple(
        ToolCall(f"{call_id}_{at}", name, json.dumps(given)) for at, (name, given) in enumerate(calls)
    )
    return ModelReply(AssistantMessage(text, made), TokenCount(tokens, 10))


@dataclass
class Studio:
    """An agent whose model follows a script. ``answer`` decides what people say to its questions."""

    repo: Path
    home: Path
    model: ScriptedModel = field(default_factory=ScriptedModel)
    service: Model | None = None
    section: NativeSection = field(default_factory=NativeSection)
    context: int = 100_000
    habits: Habits = field(default_factory=lambda: Habits(limits=LoopLimits(most_turns=20)))
    cost: Callable[[ModelReply], float | None] = lambda reply: 0.001 * reply.tokens.output
    answer: Callable[[AgentEvent], Answer | None] = lambda _: None
    turns: int = 0
    backend: NativeBackend | None = None
    sandbox: Sandbox = field(default_factory=as_it_is)
    network_policy: NetworkPolicy = field(default_factory=lambda: NetworkPolicy("none"))
    clock: SystemClock = field(default_factory=SystemClock)
    policy: Callable[[Studio], SandboxPolicy] = lambda studio: tool_policy(
        studio.repo, studio.home, PATH, {}, "C1:1.0"
    )

    def agent(self) -> NativeBackend:
        """The agent, made when first asked for."""
        if self.backend is None:
            thinker = Thinker(model=self.service or self.model, context=self.context, cost=self.cost)
            context = AgentContext(self.sandbox, self.clock, self.network_policy, SessionLogs(self.repo, 30))
            offered = tools(Config(native=self.section))
            sessions = NativeSessions(self.repo, 30)
            self.backend = NativeBackend(
                thinker, offered, context, lambda _workdir, _chat: self.policy(self), sessions, self.habits
            )
        return self.backend

    def request(self, prompt: str, session_id: str | None = None) -> TurnRequest:
        self.turns += 1
        return TurnRequest(
            turn_id=f"turn{self.turns}",
            conversation="C1:1.0",
            prompt=prompt,
            workdir=self.repo,
            session_id=session_id,
            system_prompt="Be kind.",
        )

    async def run(self, prompt: str, *script: Line, session_id: str | None = None) -> list[AgentEvent]:
        """One turn, from its prompt to its end."""
        self.model.play(*script)
        request = self.request(prompt, session_id)
        found: list[AgentEvent] = []
        async with asyncio.timeout(DEADLINE_S):
            async for event in self.agent().start(request):
                found.append(event)
                if (answer := self.answer(event)) is not None:
                    request_id = getattr(event, "id", "")
                    assert await self.agent().answer(request.turn_id, request_id, answer)
        return found

    def log(self) -> list[dict[str, Any]]:
        """The lines of the last turn's log."""
        path = self.repo / ".codebutler" / "logs" / "sessions" / f"turn{self.turns}.log"
        return [json.loads(line) for line in path.read_text().splitlines()]

    def told(self, at: int = -1) -> list[str]:
        """What the results said that the model was asked with."""
        messages = self.model.asked[at].messages
        return [message.content for message in messages if isinstance(message, ToolMessage)]


def session_of(events: Sequence[AgentEvent]) -> str:
    assert isinstance(events[0], Started)
    return events[0].session_id


@pytest.fixture
async def studio(git_repo: Path, tmp_path: Path) -> AsyncIterator[Studio]:
    (git_repo / ".codebutler").mkdir()
    (tmp_path / "home").mkdir()
    made = Studio(git_repo, tmp_path / "home")
    yield made
    await made.agent().close()
