"""``!help``: the words, or one of them."""

from __future__ import annotations

from codebutler.domain.commands import ALL, IN_THREADS, nearest, word_of
from codebutler.domain.model import OPERATOR
from codebutler_worker.commands.asked import Asked
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import code


def run(asked: Asked) -> Todo:
    """Everything on one screen, or what a single word does."""
    name = asked.argument.lstrip("!").lower()
    if not name:
        # The operator is at a terminal, where there are no slash commands.
        slash = "" if asked.user == OPERATOR else f"{IN_THREADS} "
        return asked.reply(_all(asked.settings.config.agent.default, slash))
    word = word_of(name)
    if word is None:
        near = nearest(name)
        hint = f" Did you mean `!help {near}`?" if near else " `!help` lists what I know."
        return asked.reply(f"I do not know {code('!' + name)}.{hint}")
    more = f" {word.about}" if word.about else ""
    return asked.reply(f"`{word.example}`: {word.gist}.{more}".replace("?.", "?"))


def _all(default: str, slash: str) -> str:
    return "\n".join(
        [
            f"Write anything: {default} works on it in this repository. Reply in the thread to go on.",
            "`claude: …` asks that agent. Commands:",
            *(f"`{word.example}`  {word.gist}" for word in ALL),
            f"_{slash}`!help WORD` says more._",
        ]
    )
