"""Whether the programs that are agents (`mode: headless`) could work now. Starts no turn."""

from __future__ import annotations

import os
from pathlib import Path

from codebutler.config.programs import is_headless
from codebutler.config.schema import CommandRule, RepoSettings
from codebutler.errors import AgentUnavailableError
from codebutler_worker.agents.shell.command import find
from codebutler_worker.agents.survey import Survey


def survey_headless(settings: RepoSettings) -> list[Survey]:
    """Every agent of this kind, and whether its program is there."""
    path = settings.agent_env.get("PATH") or os.environ.get("PATH", os.defpath)
    return [_survey(rule, path, settings) for rule in settings.config.commands if is_headless(rule)]


def _survey(rule: CommandRule, path: str, settings: RepoSettings) -> Survey:
    try:
        find(rule.binary, path, Path(settings.path))
    except AgentUnavailableError as error:
        return Survey(rule.prefix, ready=False, note=str(error))
    return Survey(rule.prefix, ready=True, note=rule.description)
