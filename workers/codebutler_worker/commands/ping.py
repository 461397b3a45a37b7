"""``!ping``: is anybody there?"""

from __future__ import annotations

from codebutler_worker.commands.asked import Asked
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import plain


def run(asked: Asked) -> Todo:
    """Say so."""
    return asked.reply(f"pong from {plain(asked.settings.name)}")
