"""Is there a Claude Code we can work with, and could it work now? Starts no turn."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from codebutler.config.paths import Home
from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler.platform.lookup import CLAUDE_CODE, look_up, path_of
from codebutler_worker.agents.survey import Known, Survey, Version, dotted, version_in
from codebutler_worker.programs.process import AgentProcess
from codebutler_worker.sandbox.person import as_owner
from codebutler_worker.sandbox.port import Launch

# Is there a Claude Code we can work with? Asked once per worker.

FLOOR = (2, 1, 197)
TESTED = (2, 1, 328)
INSTALL = CLAUDE_CODE.install
PROBE_S = 20.0

KNOWN = Known(CLAUDE_CODE.title, FLOOR, TESTED, INSTALL)


def judge_version(version: Version | None) -> str:
    """A note for the log, empty if all is well. Raises AgentUnavailableError below the floor."""
    if version is None:
        raise AgentUnavailableError(f"claude does not tell its version: install it with `{INSTALL}`")
    return KNOWN.judge(version)


def find_binary(binary: str, path: str, repo: Path, home: Path) -> Path:
    """The program itself, links resolved. Raises AgentUnavailableError with what to do. ``home`` is the user's.

    Relative entries of ``path`` do not count, and what lies in ``repo`` is refused: it is asked for its version
    outside any sandbox, and an agent may have written it.
    """
    found = look_up(binary, path)
    if found is None:
        raise CLAUDE_CODE.missing(binary, home)
    program = found.resolve()
    if any(place.is_relative_to(repo) for place in (program, found)):
        raise AgentUnavailableError(
            f"{found} lies in the repository, where agents may write: install Claude Code elsewhere"
        )
    return program


async def probe(binary: Path, env: dict[str, str], repo: Path) -> str:
    """Run ``--version``; returns judge_version's note. Raises AgentUnavailableError."""
    return judge_version(await ask_version(binary, env, repo))


async def ask_version(binary: Path, env: dict[str, str], repo: Path) -> Version | None:
    """What ``--version`` says to whom ``repo`` belongs, None if that is no version.

    Raises AgentUnavailableError, and SandboxUnavailableError if root cannot let it run as an ordinary user.
    """
    launch = Launch((*as_owner(repo, binary), str(binary), "--version"), env, Path("/"))
    said = b""
    async with await AgentProcess.spawn(launch) as process:
        try:
            async with asyncio.timeout(PROBE_S):
                async for line in process.lines():
                    said += line
        except TimeoutError:
            raise AgentUnavailableError("`claude --version` does not answer: reinstall Claude Code") from None
    return version_in(said.decode(errors="replace"))


# Whether Claude Code could work now. Starts no turn.

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
