"""An AcpBackend from a repository's settings."""

from __future__ import annotations

from pathlib import Path

import msgspec

from codebutler.clock import Clock
from codebutler.config.schema import CommandRule, Config, KimiSection, RepoSettings
from codebutler_worker.agents.acp.backend import AcpBackend
from codebutler_worker.agents.acp.kimi import Kimi
from codebutler_worker.agents.acp.other import Other
from codebutler_worker.agents.record import SessionLogs
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.egress.outlet import for_agents
from codebutler_worker.sandbox.port import Sandbox


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
