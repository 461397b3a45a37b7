"""A session from a terminal into a thread and back, with the real Claude Code and the real Kimi Code."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from codebutler.config.agent_sessions import PastSession, terminal_sessions
from codebutler.config.schema import ClaudeSection, Config, KimiSection, RepoSettings
from codebutler.domain.clock import SystemClock
from codebutler_worker.agents.acp.backend import AcpBackend
from codebutler_worker.agents.acp.kimi import Kimi
from codebutler_worker.agents.backend import AgentBackend, Started, TurnRequest
from codebutler_worker.agents.claude.backend import ClaudeBackend
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.commands.terminal import TerminalSessions
from codebutler_worker.egress.policy import for_agents
from tests.commands import output_of
from tests.integration.agents.test_shell_agent import TURN, Told, backend_of
from tests.integration.agents.test_tuis import KEY, press, program
from tests.modelserver.server import ModelServer, Reply
from tests.ordinary import give_away
from tests.programs import path_with_node, require
from tests.turns import end, heard
from tests.walls import walled

WRITTEN_S = 30.0


@dataclass
class Place:
    """A machine with a repository, the programs and a model."""

    model: ModelServer
    home: Path
    repo: Path

    @property
    def settings(self) -> RepoSettings:
        config = Config(
            claude=ClaudeSection(binary=str(require("claude"))),
            kimi=KimiSection(binary=str(require("kimi")), api_key=KEY, base_url=f"{self.model.url}/v1"),
        )
        return RepoSettings(name="sample", path=str(self.repo), channel_id="C1", config=config)

    @property
    def desk(self) -> TerminalSessions:
        return TerminalSessions(self.settings, self.home)

    @property
    def claude_env(self) -> dict[str, str]:
        return {"ANTHROPIC_BASE_URL": self.model.url, "ANTHROPIC_API_KEY": KEY}

    def _context(self, env: dict[str, str]) -> AgentContext:
        return AgentContext(walled(), SystemClock(), for_agents(self.settings.config.sandbox, "bwrap", env))

    def claude(self) -> AgentBackend:
        env = self.claude_env
        return ClaudeBackend(self.settings.config.claude, self._context(env), self.home, env)

    def kimi(self) -> AgentBackend:
        env = {"PATH": path_with_node()}
        return AcpBackend(Kimi(self.settings.config.kimi, self.home, env), self._context(env))

    def turn(self, prompt: str, session_id: str) -> TurnRequest:
        return TurnRequest(
            turn_id="t", conversation="c", prompt=prompt, workdir=self.repo, session_id=session_id
        )

    async def begun(self) -> PastSession:
        """The oldest session that was begun in a terminal. Its agent may write it later than it shows an answer."""
        async with asyncio.timeout(WRITTEN_S):
            while True:
                give_away(self.home)
                found = terminal_sessions(self.home, self.repo)
                if found and found[-1].prompts:
                    return found[-1]
                await asyncio.sleep(0.1)  # a file tells nobody


@pytest.fixture
async def place(tmp_path: Path, git_repo: Path) -> AsyncIterator[Place]:
    require("bwrap")
    home = tmp_path / "home"
    home.mkdir()
    async with ModelServer() as model:
        yield Place(model, home, git_repo)


async def at_claudes_screen(place: Place) -> Told:
    known = {
        "hasCompletedOnboarding": True,
        "customApiKeyResponses": {"approved": [KEY[-20:]]},
        "projects": {str(place.repo): {"hasTrustDialogAccepted": True}},
    }
    (place.home / ".claude.json").write_text(json.dumps(known))
    give_away(place.home)
    words = [f"{name}={value}" for name, value in place.claude_env.items()]
    env = " ".join([f"HOME={place.home}", *words, "DISABLE_AUTOUPDATER=1"])
    told = Told(backend_of(place.repo, program("claude", env)), place.repo, "")
    await told.until_shown("Claude Code v")
    return told


async def left(told: Told) -> None:
    assert await told.backend.type(TURN, "/exit") == ""
    assert (await told.end()).exit_code == 0


async def test_claude_into_a_thread_and_back(place: Place) -> None:
    place.model.play(*[Reply(f"Heard, number {number}.") for number in range(8)])
    told = await at_claudes_screen(place)
    await press(told, "remember the word xylophone", "Heard, number 0.")

    # While it is open there, the thread goes on with a copy.
    session = await place.begun()
    assert (session.agent, session.prompts) == ("claude", ("remember the word xylophone",))
    copied = await place.desk.adopt(session, "C1:1.0")
    assert copied != session.id
    backend = place.claude()
    events = await heard(backend, place.turn("which word?", copied))
    assert end(events).ok
    assert "xylophone" in place.model.said()
    assert [event.session_id for event in events if isinstance(event, Started)] == [copied]
    price = end(events).usage.cost_usd
    assert price is not None
    again = end(await heard(backend, place.turn("and now?", copied)))
    assert again.total_cost_usd == pytest.approx(2 * price), (
        "what it cost in the terminal is not the thread's"
    )

    # The terminal has lost nothing.
    await press(told, "are you there?", "Heard, number 3.")
    await left(told)
    assert "which word?" not in place.model.said()
    session = await place.desk.find(session.id)
    assert session.prompts == ("remember the word xylophone", "are you there?")

    # Closed there, it goes on as it is, and back at the desk its history is whole.
    assert await place.desk.adopt(session, "C1:2.0") == session.id
    assert end(await heard(backend, place.turn("from the thread", session.id))).ok
    command = (await place.desk.hand_over("claude", session.id, "C1:2.0")).command
    env = {**place.claude_env, "HOME": str(place.home), "PATH": path_with_node(), "IS_SANDBOX": "1"}
    await output_of("bash", "-c", f"{command} -p 'at the desk'", env=env)
    said = place.model.said()
    assert "from the thread" in said
    assert "are you there?" in said
    await backend.close()


async def test_kimi_into_a_thread_and_back(place: Place) -> None:
    place.model.play(*[Reply(f"Heard, number {number}.") for number in range(8)])
    give_away(place.home)
    env = (
        f"HOME={place.home} PATH={path_with_node()} KIMI_MODEL_NAME=kimi-k2.6 KIMI_MODEL_API_KEY={KEY} "
        f"KIMI_MODEL_BASE_URL={place.model.url}/v1 KIMI_DISABLE_TELEMETRY=1 KIMI_CODE_NO_AUTO_UPDATE=1"
    )
    told = Told(backend_of(place.repo, program("kimi", env)), place.repo, "")
    await told.until_shown("❯ Trust this folder")
    await press(told, "^M", "Welcome to Kimi Code!")
    await press(told, "remember the word marimba", "Heard, number 0.")

    session = await place.begun()
    assert (session.agent, session.answer) == ("kimi", "Heard, number 0.")
    # On a slow machine it was typed more than once before it showed.
    assert {line for text in session.prompts for line in text.split("\n")} == {"remember the word marimba"}
    copied = await place.desk.adopt(session, "C1:1.0")
    assert copied != session.id
    backend = place.kimi()
    events = await heard(backend, place.turn("which word?", copied))
    assert end(events).ok
    assert "marimba" in place.model.said()
    await left(told)

    assert await place.desk.adopt(session, "C1:2.0") == session.id
    assert end(await heard(backend, place.turn("from the thread", session.id))).ok
    command = (await place.desk.hand_over("kimi", session.id, "C1:2.0")).command
    assert KEY not in command
    known = {"HOME": str(place.home), "PATH": path_with_node(), "KIMI_API_KEY": KEY}
    await output_of("bash", "-c", f"{command} -p 'at the desk'", env=known)
    said = place.model.said()
    assert "from the thread" in said
    assert "which word?" not in said
    await backend.close()
