"""For words that become an agent's prompt when they are said as they have to be: only the others come here."""

from __future__ import annotations

from codebutler.words import WORDS, misuse
from codebutler_worker.commands.asked import Asked
from codebutler_worker.desk.todo import Todo


def run(asked: Asked) -> Todo:
    """Say how the word is written."""
    return asked.reply(misuse(WORDS[asked.command.name]))
