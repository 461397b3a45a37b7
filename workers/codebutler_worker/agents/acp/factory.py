"""An AcpBackend from a repository's settings, and whether such an agent could work now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from codebutler.config.schema import CommandRule, Config, KimiSection, RepoSettings
from codebutler.domain.clock import Clock
from codebutler.domain.errors import AgentUnavailableError, SandboxUnavailableError
from codebutler_worker.agents.acp.backend import AcpBackend
from codebutler_worker.agents.acp.kimi import Kimi
from codebutler_worker.agents.acp.other import Other
from codebutler_worker.agents.acp.probe import ask_version, judge
from codebutler_worker.agents.record import SessionLogs
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.survey import Survey, dotted, version_in
from codebutler_worker.egress.outlet import for_agents
from codebutler_worker.sandbox.port import Sandbox

# An AcpBackend from a repository's settings.


def acp_backend(name: str, settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock) -> AcpBackend:
    """The agent called ``name``: one of ``commands``, or Kimi Code. Raises SandboxUnavailableError."""
    config = settings.config
    rule = rule_of(config, name)
    kind = (
        Kimi(kimi_of(config), home, settings.agent_env, config.native.prices)
        if rule is None
        else Other(rule, home, settings.agent_env, config.session.timeout_minutes)
    )
    outlet = for_agents(config.sandbox, sandbox.name, settings.agent_env)
    return AcpBackend(kind, AgentContext(sandbox, clock, outlet, SessionLogs.of(settings)))


def rule_of(config: Config, name: str) -> CommandRule | None:
    """The configured agent of that name; None for our own way to Kimi Code, which the built-in rule stands for."""
    found = next((rule for rule in config.commands if rule.prefix == name and rule.mode == "acp"), None)
    return None if found is not None and found.prefix == Kimi.name and not found.args else found


def kimi_of(config: Config) -> KimiSection:
    """Kimi Code's settings; a rule that replaces the built-in one names another program."""
    rules = (rule for rule in config.commands if rule.prefix == Kimi.name and rule.mode == "acp")
    rule = next(rules, None)
    return config.kimi if rule is None else msgspec.structs.replace(config.kimi, binary=rule.binary)


# Whether the agents that speak the protocol could work now. Starts no turn.

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
