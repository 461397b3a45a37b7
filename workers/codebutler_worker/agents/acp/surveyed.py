"""Whether the agents that speak the protocol could work now. Starts no turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from codebutler.config.schema import RepoSettings
from codebutler.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.agents.acp.kimi import Kimi
from codebutler_worker.agents.acp.made import kimi_of
from codebutler_worker.agents.acp.probe import ask_version
from codebutler_worker.agents.acp.versions import judge
from codebutler_worker.agents.survey import Survey, dotted, version_in

LOGIN = "not logged in: run `kimi login` on this machine, or `codebutler config set kimi.apiKey` for a key"


async def survey_kimi(settings: RepoSettings, home: Path) -> Survey:
    """Kimi Code: its program, its version, its key or login."""
    section, repo = kimi_of(settings.config), Path(settings.path)
    kimi = Kimi(section, home, settings.agent_env)
    try:
        found = kimi.find(repo)
        said = await ask_version(found, kimi.environment(), repo)
        note = judge(said)
    except (AgentUnavailableError, SandboxUnavailableError) as error:
        return Survey(kimi.name, ready=False, note=str(error))
    version = version_in(said)
    shown = dotted(version) if version else ""
    if not section.api_key and not await asyncio.to_thread(_has_login, home):
        return Survey(kimi.name, ready=False, note=LOGIN, version=shown)
    return Survey(kimi.name, ready=True, note=note, version=shown)


def _has_login(home: Path) -> bool:
    """A login, or settings that may name a service; whether it is still taken shows at the next turn."""
    code = home / ".kimi-code"
    return (code / "config.toml").is_file() or any((code / "credentials").glob("*"))
