"""A HeadlessBackend from a repository's settings."""

from __future__ import annotations

from pathlib import Path

from codebutler.clock import Clock
from codebutler.config.schema import CommandRule, RepoSettings
from codebutler.process.lookup import path_of
from codebutler_worker.agents.headless.backend import HeadlessBackend
from codebutler_worker.agents.record import SessionLogs
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.shell.command import Surroundings
from codebutler_worker.egress.outlet import for_agents
from codebutler_worker.sandbox.port import Sandbox


def headless_backend(
    rule: CommandRule, settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock
) -> HeadlessBackend:
    """The agent behind ``rule``'s prefix. Raises SandboxUnavailableError."""
    config = settings.config
    path = path_of(settings.agent_env)
    around = Surroundings(home, path, settings.agent_env)
    outlet = for_agents(config.sandbox, sandbox.name, settings.agent_env)
    context = AgentContext(sandbox, clock, outlet, SessionLogs.of(settings))
    return HeadlessBackend(rule, context, around, config.session.timeout_minutes * 60)
