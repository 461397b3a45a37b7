"""Whether the programs that are agents (`mode: headless`) could work now. Starts no turn."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.programs import is_headless
from codebutler.config.schema import CommandRule, RepoSettings
from codebutler.process.lookup import look_up, missing_rule, path_of
from codebutler_worker.agents.survey import Survey


def survey_headless(settings: RepoSettings, home: Path) -> list[Survey]:
    """Every agent of this kind, and whether its program is there."""
    return [survey_program(rule, settings, home) for rule in settings.config.commands if is_headless(rule)]


def survey_program(rule: CommandRule, settings: RepoSettings, home: Path) -> Survey:
    """An agent of the configuration: all that can be known of it without starting it is whether it is there."""
    if look_up(rule.binary, path_of(settings.agent_env), Path(settings.path)) is None:
        return Survey(rule.prefix, ready=False, note=str(missing_rule(rule.binary, home)))
    return Survey(rule.prefix, ready=True, note=rule.description)
