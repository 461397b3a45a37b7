"""A ShellBackend from a repository's settings."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.programs import CHECKS
from codebutler.config.schema import CommandRule, RepoSettings
from codebutler.domain.clock import Clock
from codebutler.platform.lookup import path_of
from codebutler_worker.agents.instructions import instructions
from codebutler_worker.agents.record import SessionLogs
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.shell.backend import ShellBackend
from codebutler_worker.agents.shell.command import Surroundings
from codebutler_worker.agents.shell.run import Pace
from codebutler_worker.egress.outlet import for_agents, for_commands
from codebutler_worker.sandbox.port import Sandbox


def shell_backend(
    rule: CommandRule, settings: RepoSettings, sandbox: Sandbox, home: Path, clock: Clock
) -> ShellBackend:
    """The agent behind ``rule``'s prefix. Checks run what agents wrote, so they reach what agents reach."""
    config = settings.config
    repo = Path(settings.path)
    path = path_of(settings.agent_env)
    taught = instructions(repo, config.envelope.prompt_file) if rule.envelope else ""
    pace = Pace(
        flush_s=config.output.flush_interval_ms / 1000,
        limit_s=config.session.timeout_minutes * 60,
        activation_s=config.envelope.activation_delay_ms / 1000,
        unclosed_s=config.envelope.unclosed_timeout_ms / 1000,
    )
    around = Surroundings(home, path, settings.agent_env, taught)
    outlet_for = for_agents if rule.prefix == CHECKS.prefix else for_commands
    outlet = outlet_for(config.sandbox, sandbox.name, settings.agent_env)
    return ShellBackend(rule, AgentContext(sandbox, clock, outlet, SessionLogs.of(settings)), around, pace)
