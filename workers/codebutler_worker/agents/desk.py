"""Move sessions from a terminal into a thread and back."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from pathlib import Path

from codebutler.config.agent_sessions import (
    CLAUDE,
    KIMI,
    PastSession,
    files_of,
    find_session,
    terminal_sessions,
)
from codebutler.config.schema import RepoSettings
from codebutler_worker.agents.sessions import brought_to
from codebutler_worker.sandbox.person import HOMES
from codebutler_worker.tree.worktrees import existing, tree_of

SHARED = (CLAUDE, KIMI)
"""The agents whose sessions can continue in a terminal."""
MOVED_HOME = {CLAUDE: ("CLAUDE_CONFIG_DIR", ".claude"), KIMI: ("KIMI_CODE_HOME", ".kimi-code")}


@dataclass(frozen=True, slots=True)
class AtDesk:
    """How a session continues in a terminal: the command, and its id there."""

    command: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Desk:
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
