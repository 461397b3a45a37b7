"""Which agents there are, and whether each could work now: its program, its version, its login. Starts no turn.

It imports every kind of agent, so import it only where it is needed: most workers never need it.

Move sessions from a terminal into a thread and back.
"""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path

from msgspec import Struct

from codebutler.config.agent_sessions import (
    CLAUDE,
    KIMI,
    PastSession,
    files_of,
    find_session,
    terminal_sessions,
)
from codebutler.config.schema import Config, OpenAISection, RepoSettings
from codebutler.domain.errors import AgentUnavailableError
from codebutler_worker.agents.acp.backend import rule_of, survey_kimi
from codebutler_worker.agents.claude.backend import survey_claude
from codebutler_worker.agents.headless import survey_headless, survey_program
from codebutler_worker.agents.native.model import target
from codebutler_worker.agents.shared_sessions import brought_to
from codebutler_worker.agents.survey import Survey
from codebutler_worker.sandbox.person import HOMES
from codebutler_worker.tree.worktrees import existing, tree_of


async def survey(settings: RepoSettings, home: Path) -> tuple[Survey, ...]:
    """Every agent in the repository's configuration, working ones first."""
    config = settings.config
    found = [
        await survey_claude(settings, home),
        Survey("rehearsal", ready=True, note="works offline, for trying things out"),
        _image(config),
        _native(config),
        *await _protocol(settings, home),
        *survey_headless(settings, home),
    ]
    return tuple(sorted(found, key=lambda one: not one.ready))


async def _protocol(settings: RepoSettings, home: Path) -> list[Survey]:
    rules = [rule for rule in settings.config.commands if rule_of(settings.config, rule.prefix) is rule]
    found = [survey_program(rule, settings, home) for rule in rules]
    replaced = "kimi" in {
        rule.prefix for rule in settings.config.commands if rule.mode != "acp" or rule in rules
    }
    return found if replaced else [await survey_kimi(settings, home), *found]


def _image(config: Config) -> Survey:
    own_service = config.openai.base_url != OpenAISection().base_url
    ready = bool(config.openai.api_key) or own_service
    return Survey(
        "image",
        ready=ready,
        note="" if ready else "not set up: run `codebutler config set openai.apiKey` to generate images",
    )


def _native(config: Config) -> Survey:
    try:
        found = target(config)
    except AgentUnavailableError as error:
        return Survey("agent", ready=False, note=str(error))
    return Survey("agent", ready=True, note=f"the built-in agent, over {found.model}")


SHARED = (CLAUDE, KIMI)
"""The agents whose sessions can continue in a terminal."""
MOVED_HOME = {CLAUDE: ("CLAUDE_CONFIG_DIR", ".claude"), KIMI: ("KIMI_CODE_HOME", ".kimi-code")}


class AtDesk(Struct, frozen=True):
    """How a session continues in a terminal: the command, and its id there."""

    command: str
    session_id: str


class Desk(Struct, frozen=True):
    """The sessions of one repository's agents. ``home`` is where their programs keep them."""

    settings: RepoSettings
    home: Path

    @property
    def _repo(self) -> Path:
        return Path(self.settings.path)

    async def sessions(self) -> list[PastSession]:
        """Sessions started in a terminal in the repository, newest first."""
        return await asyncio.to_thread(terminal_sessions, self.home, self._repo)

    async def find(self, named: str) -> PastSession:
        """The session of that id, or whose id begins so. Raises CodeButlerError."""
        return await asyncio.to_thread(find_session, self.home, self._repo, named)

    async def adopt(self, session: PastSession, conversation: str) -> str:
        """Let the conversation's agent resume it; returns the id to resume, which is a copy if it is
        open in a terminal or the conversation works in a worktree. Raises AgentUnavailableError."""
        given = (self.home, session.agent, session.id, self._repo, self._place_of(conversation))
        return await asyncio.to_thread(brought_to, *given)

    async def moved(self, agent: str, session_id: str, begun_in: str, conversation: str) -> str:
        """The session that an agent began in the worktree of another conversation, as this conversation's agent can
        resume it. Raises AgentUnavailableError."""
        worktree = tree_of(self._repo, begun_in)
        given = (self.home, agent, session_id, worktree, self._place_of(conversation))
        return await asyncio.to_thread(brought_to, *given)

    def _place_of(self, conversation: str) -> Path:
        isolated = self.settings.config.agent.isolation == "worktree"
        return tree_of(self._repo, conversation) if isolated else self._repo

    async def hand_over(self, agent: str, session_id: str, conversation: str) -> AtDesk:
        """How the conversation's session continues in a terminal, where its files are, or (its worktree is gone) in the
        repository with a copy of it. Raises AgentUnavailableError."""
        return await asyncio.to_thread(self._hand_over, agent, session_id, conversation)

    def _hand_over(self, agent: str, session_id: str, conversation: str) -> AtDesk:
        begun_in = tree_of(self._repo, conversation)
        workdir = existing(self._repo, conversation) or self._repo
        places = [each for each in files_of(self.home, workdir) if each.agent == agent]
        if not any(each.has(session_id) for each in places):
            session_id = brought_to(self.home, agent, session_id, begun_in, workdir)
        words = " ".join([*self._settings_of(agent), self._program(agent), session_id])
        return AtDesk(f"cd {shlex.quote(str(workdir))} && {words}", session_id)

    def _program(self, agent: str) -> str:
        config = self.settings.config
        if agent == CLAUDE:
            return f"{shlex.quote(config.claude.binary)} --resume"
        return f"{shlex.quote(config.kimi.binary)} --session"

    def _settings_of(self, agent: str) -> list[str]:
        """What the program needs in its environment to find the session and its model; a key is named, not shown."""
        config, words = self.settings.config, []
        if self.home.parent == HOMES:
            name, directory = MOVED_HOME[agent]
            words.append(f"{name}={shlex.quote(str(self.home / directory))}")
        if agent == KIMI and config.kimi.api_key:
            # Not for every worker's memory.
            from codebutler_worker.agents.native.model import PRESETS

            model = config.kimi.model or PRESETS[KIMI].model
            words += [
                f"KIMI_MODEL_NAME={shlex.quote(model)}",
                f"KIMI_MODEL_BASE_URL={shlex.quote(config.kimi.base_url)}",
                'KIMI_MODEL_API_KEY="$KIMI_API_KEY"',
            ]
        return words
