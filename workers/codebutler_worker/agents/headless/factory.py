"""A HeadlessBackend from a repository's settings, and whether such an agent could work now."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.programs import is_headless
from codebutler.config.schema import CommandRule, RepoSettings
from codebutler.domain.clock import Clock
from codebutler.platform.lookup import look_up, missing_rule, path_of
from codebutler_worker.agents.headless.backend import HeadlessBackend
from codebutler_worker.agents.record import SessionLogs
from codebutler_worker.agents.running import AgentContext
from codebutler_worker.agents.shell.command import Surroundings
from codebutler_worker.agents.survey import Survey
from codebutler_worker.egress.outlet import for_agents
from codebutler_worker.sandbox.port import Sandbox

# A HeadlessBackend from a repository's settings.


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


# Whether the programs that are agents (`mode: headless`) could work now. Starts no turn.


def survey_headless(settings: RepoSettings, home: Path) -> list[Survey]:
    """Every agent of this kind, and whether its program is there."""
    return [survey_program(rule, settings, home) for rule in settings.config.commands if is_headless(rule)]


def survey_program(rule: CommandRule, settings: RepoSettings, home: Path) -> Survey:
    """An agent of the configuration: all that can be known of it without starting it is whether it is there."""
    if look_up(rule.binary, path_of(settings.agent_env), Path(settings.path)) is None:
        return Survey(rule.prefix, ready=False, note=str(missing_rule(rule.binary, home)))
    return Survey(rule.prefix, ready=True, note=rule.description)
