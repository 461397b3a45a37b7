"""Whether Claude Code could work now. Starts no turn."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.config.schema import RepoSettings
from codebutler.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler.process.lookup import path_of
from codebutler_worker.agents.claude.probe import ask_version, find_binary, judge_version
from codebutler_worker.agents.survey import Survey
from codebutler_worker.agents.versions import dotted

LOGIN = "not logged in: run `claude auth login` on this machine, or put ANTHROPIC_API_KEY into {env_file}"
KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
CREDENTIALS = ".claude/.credentials.json"


async def survey_claude(settings: RepoSettings, home: Path) -> Survey:
    """Its program, its version, its key or login."""
    env, repo = settings.agent_env, Path(settings.path)
    try:
        binary = find_binary(settings.config.claude.binary, path_of(env), repo, home)
        version = await ask_version(binary, dict(env), repo)
        note = judge_version(version)
    except (AgentUnavailableError, SandboxUnavailableError) as error:
        return Survey("claude", ready=False, note=str(error))
    shown = dotted(version) if version else ""
    if not await asyncio.to_thread(_logged_in, env, home):
        note = LOGIN.format(env_file=Home.from_env(os.environ).env_file)
        return Survey("claude", ready=False, note=note, version=shown)
    return Survey("claude", ready=True, note=note, version=shown)


def _logged_in(env: Mapping[str, str], home: Path) -> bool:
    """Whether there is a key or a login; whether the service still takes it shows at the next turn.

    macOS keeps the login in its keychain, which is not ours to open.
    """
    kept = sys.platform == "darwin" or (home / CREDENTIALS).is_file()
    return kept or any(env.get(key) for key in KEYS)
