"""``!checks``: the repository's own check command, as a turn of the shell."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.schema import RepoSettings
from codebutler.domain.model import Command, Prompt, Request
from codebutler_worker.commands.asked import Asked
from codebutler_worker.desk.naming import CHECKS
from codebutler_worker.desk.todo import Todo
from codebutler_worker.tree.checks import checks_command

NOTHING = (
    "I found nothing that checks this repository: set `checks.command` in its `.codebutler/config.json`, "
    "then run `codebutler trust` on its machine."
)

NO_CHECKS = Command(name=CHECKS)
"""What a request for the checks becomes where there are none."""


def resolved(request: Request, settings: RepoSettings) -> Request:
    """A request for the checks with the command to run; any other as it is."""
    if not isinstance(request, Prompt) or request.prefix != CHECKS:
        return request
    command = checks_command(settings.config.checks.command, Path(settings.path))
    return NO_CHECKS if command is None else Prompt(text=command, prefix=CHECKS)


def run(asked: Asked) -> Todo:
    """Only where there is nothing to run: otherwise it is a prompt."""
    return asked.reply(NOTHING)
