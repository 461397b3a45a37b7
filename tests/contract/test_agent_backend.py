"""What every AgentBackend promises, whoever the agent is."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from codebutler.config.programs import RUN
from codebutler.config.schema import (
    ClaudeSection,
    CommandRule,
    Config,
    KimiSection,
    NativeSection,
    RepoSettings,
)
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.acp.agent import AcpAgent
from codebutler_worker.agents.acp.backend import AcpBackend
from codebutler_worker.agents.acp.kimi import Kimi
from codebutler_worker.agents.backend import (
    AgentBackend,
    AgentEvent,
    Answer,
    Finished,
    Output,
    Started,
    Text,
    ToolUse,
    TurnRequest,
)
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.headless import HeadlessBackend
from codebutler_worker.agents.native.backend import native_backend
from codebutler_worker.agents.rehearsal.backend import RehearsalBackend
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.session_logs import SessionLogs
from codebutler_worker.agents.shell.backend import ShellBackend
from codebutler_worker.agents.shell.run import Pace
from codebutler_worker.agents.survey import Surroundings
from codebutler_worker.store.opening import STATE_DIR
from tests.modelserver.completions import CompletionsServer
from tests.modelserver.server import Call, ModelServer, Reply
from tests.programs import path_with_node, require
from tests.walls import NoWalls, as_it_is

DEADLINE_S = 60
ACP_AGENT = Path(__file__).parents[1] / "acpagent" / "agent.py"
UNKNOWN = "11111111-1111-4111-8111-111111111111"


class Rig(Protocol):
    """An agent, and the prompts that make it answer at once or work until it is ended."""

    backend: AgentBackend

    def quick(self) -> str: ...

    def endless(self) -> str: ...


@dataclass
class ClaudeRig:
    backend: AgentBackend
    model: ModelServer

    def quick(self) -> str:
        self.model.play(Reply("Answered."))
        return "answer"

    def endless(self) -> str:
        command = "python3 -c 'import time; time.sleep(300)'"
        self.model.play(Reply("Working.", (Call("Bash", {"command": command, "description": "wait"}),)))
        return "work"


@dataclass
class KimiRig:
    backend: AgentBackend
    model: ModelServer

    def quick(self) -> str:
        self.model.play(Reply("Answered."))
        return "answer"

    def endless(self) -> str:
        self.model.play(
            Reply(
                "Working.", (Call("Bash", {"command": "sleep 300", "description": "wait", "timeout": 300}),)
            )
        )
        return "work"


@dataclass
class NativeRig:
    backend: AgentBackend
    model: CompletionsServer

    def quick(self) -> str:
        self.model.play(Reply("Answered."))
        return "answer"

    def endless(self) -> str:
        call = Call("run_terminal_command", {"command": "sleep 300", "wait_s": 300})
        self.model.play(Reply("Working.", (call,)))
        return "work"


@dataclass
class OtherRig:
    """A program of the tests that speaks the Agent Client Protocol."""

    backend: AgentBackend

    def quick(self) -> str:
        return "answer"

    def endless(self) -> str:
        return "work"


@dataclass
class RehearsalRig:
    backend: AgentBackend

    def quick(self) -> str:
        return "list files"

    def endless(self) -> str:
        return "wait 300 seconds"


@dataclass
class ShellRig:
    backend: AgentBackend

    def quick(self) -> str:
        return "echo answered"

    def endless(self) -> str:
        return "echo begun; sleep 300"


@pytest.fixture(params=["claude", "kimi", "native", "other", "rehearsal"])
async def remembering(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """An agent whose later turns know the earlier ones."""
    async for made in _rig(request.param, tmp_path):
        yield made


@pytest.fixture(params=["claude", "kimi", "native", "other", "rehearsal", "run", "headless"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    """Any agent."""
    async for made in _rig(request.param, tmp_path):
        yield made


async def _rig(agent: str, tmp_path: Path) -> AsyncIterator[Rig]:
    home = tmp_path / "home"
    home.mkdir()
    if (offline := _offline(agent, home, tmp_path)) is not None:
        yield offline
        await offline.backend.close()
        return
    if agent == "native":
        (tmp_path / STATE_DIR).mkdir()
        async with CompletionsServer() as completions:
            section = NativeSection(base_url=completions.base_url, model="m", api_key="dummy")
            repo = RepoSettings(name="r", path=str(tmp_path), channel_id="C1", config=Config(native=section))
            native = NativeRig(native_backend(repo, as_it_is(), home, SystemClock()), completions)
            yield native
            await native.backend.close()
        return
    binary = require(agent)
    async with ModelServer() as model:
        asking = _asking(agent, binary, home, model)
        yield asking
        await asking.backend.close()


def _offline(agent: str, home: Path, repo: Path) -> Rig | None:
    """One that asks no model."""
    if agent in ("run", "headless"):
        return ShellRig(_program(agent, home, repo))
    if agent == "rehearsal":
        return RehearsalRig(RehearsalBackend(AgentContext(as_it_is(), SystemClock()), home))
    if agent == "other":
        rule = CommandRule(prefix="other", binary=sys.executable, args=(str(ACP_AGENT), "plain"), mode="acp")
        return OtherRig(
            AcpBackend(AcpAgent(rule, home, {}, timeout_minutes=30), AgentContext(NoWalls(), SystemClock()))
        )
    return None


def _asking(agent: str, binary: Path, home: Path, model: ModelServer) -> Rig:
    """A program that asks one."""
    if agent == "kimi":
        kimi = KimiSection(binary=str(binary), api_key="sk-dummy", base_url=f"{model.url}/v1")
        kind = Kimi(kimi, home, {"PATH": path_with_node()})
        return KimiRig(AcpBackend(kind, AgentContext(NoWalls(), SystemClock())), model)
    env = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
    settings = ClaudeSection(binary=str(binary))
    return ClaudeRig(ClaudeBackend(settings, AgentContext(NoWalls(), SystemClock()), home, env), model)


def _program(agent: str, home: Path, repo: Path) -> AgentBackend:
    around = Surroundings(home, "/usr/bin:/bin")
    if agent == "headless":
        rule = CommandRule(prefix="x", binary="bash", args=("-c", 'eval "$0"'), mode="headless")
        return HeadlessBackend(rule, AgentContext(as_it_is(), SystemClock()), around, 600)
    context = AgentContext(as_it_is(), SystemClock(), logs=SessionLogs(repo, 30))
    return ShellBackend(RUN, context, around, Pace(flush_s=0.3))


def turn(repo: Path, prompt: str, name: str = "1", session_id: str | None = None) -> TurnRequest:
    return TurnRequest(
        turn_id=f"t{name}", conversation=f"c{name}", prompt=prompt, workdir=repo, session_id=session_id
    )


async def run(rig: Rig, request: TurnRequest) -> list[AgentEvent]:
    async with asyncio.timeout(DEADLINE_S):
        return [event async for event in rig.backend.start(request)]


def session_of(events: list[AgentEvent]) -> str:
    return next(event.session_id for event in events if isinstance(event, Started))


async def test_a_turn_starts_speaks_and_finishes_once(rig: Rig, git_repo: Path) -> None:
    events = await run(rig, turn(git_repo, rig.quick()))
    assert isinstance(events[0], Started)
    assert any(isinstance(event, (Text, Output)) for event in events)
    assert [event for event in events if isinstance(event, Finished)] == [events[-1]]
    assert isinstance(events[-1], Finished)
    assert (events[-1].ok, events[-1].reason) == (True, "done")
    assert events[-1].text


async def test_a_later_turn_resumes_the_session(remembering: Rig, git_repo: Path) -> None:
    first = await run(remembering, turn(git_repo, remembering.quick()))
    again = await run(remembering, turn(git_repo, remembering.quick(), session_id=session_of(first)))
    started = [event for event in first if isinstance(event, Started)]
    assert [event for event in again if isinstance(event, Started)] == started


async def test_a_session_that_nobody_knows_is_replaced(remembering: Rig, git_repo: Path) -> None:
    events = await run(remembering, turn(git_repo, remembering.quick(), session_id=UNKNOWN))
    started = [event for event in events if isinstance(event, Started)]
    assert started[-1].fresh
    assert started[-1].session_id != UNKNOWN
    assert isinstance(events[-1], Finished)
    assert events[-1].ok


async def test_a_stopped_turn_ends_in_time(rig: Rig, git_repo: Path) -> None:
    events = rig.backend.start(turn(git_repo, rig.endless()))
    seen: list[AgentEvent] = []
    async with asyncio.timeout(DEADLINE_S):
        async for event in events:
            seen.append(event)
            if isinstance(event, (ToolUse, Text)):
                break
    async with asyncio.timeout(5):
        stop = asyncio.create_task(rig.backend.stop("t1"))
        rest = [event async for event in events]
        await stop
    assert isinstance(rest[-1], Finished)
    assert (rest[-1].ok, rest[-1].reason) == (False, "stopped")


async def test_conversations_run_side_by_side(rig: Rig, git_repo: Path) -> None:
    working = rig.backend.start(turn(git_repo, rig.endless(), "1"))
    async with asyncio.timeout(DEADLINE_S):
        async for event in working:
            if isinstance(event, (ToolUse, Text)):
                break
    events = await run(rig, turn(git_repo, rig.quick(), "2"))
    assert isinstance(events[-1], Finished)
    assert events[-1].ok
    async with asyncio.timeout(5):
        await rig.backend.close()
        assert any([isinstance(event, Finished) async for event in working])


async def test_a_turn_that_is_not_there_takes_nothing(rig: Rig, git_repo: Path) -> None:
    await run(rig, turn(git_repo, rig.quick()))
    assert not await rig.backend.steer("t1", "more")
    assert not await rig.backend.answer("t1", "1", Answer(allow=True))
    await rig.backend.stop("t1")
    await rig.backend.stop("never")


async def test_closing_twice_is_harmless(rig: Rig, git_repo: Path) -> None:
    await run(rig, turn(git_repo, rig.quick()))
    await rig.backend.close()
    await rig.backend.close()
