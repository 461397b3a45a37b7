"""A HeadlessBackend from a repository's settings."""

from __future__ import annotations

import os
from pathlib import Path

from codebutler.clock import Clock
from codebutler.config.schema import CommandRule, RepoSettings
from codebutler_worker.agents.headless.backend import HeadlessBackend
from codebutler_worker.agents.record import SessionLogs
from codebutler_worker.agents.shell.command import Surroundings
from codebutler_worker.egress.outlet import for_agents
from codebutler_worker.sandbox.port import Sandbox


def headless_backend(
    rule: CommandRule, settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock
) -> HeadlessBackend:
    """The agent behind ``rule``'s prefix. Raises SandboxUnavailableError."""
    config = settings.config
    path = settings.agent_env.get("PATH") or os.environ.get("PATH", os.defpath)
    around = Surroundings(home, path, settings.agent_env)
    backend = HeadlessBackend(rule, sandbox, around, clock, config.session.timeout_minutes * 60)
    backend.outlet = for_agents(config.sandbox, sandbox.name, settings.agent_env)
    backend.logs = SessionLogs.of(settings)
    return backend
