"""Words whose engine this version does not have: one honest line each."""

from __future__ import annotations

from codebutler_worker.commands.asked import Asked
from codebutler_worker.conversation.queueing import Todo

LINES = {
    "skills": "There are no skills here: this version has none yet. Claude Code reads its own from the repository.",
}


def run(asked: Asked) -> Todo:
    """Say what there is instead."""
    return asked.reply(LINES[asked.command.name])
