"""``!ping``: is anybody there?"""

from __future__ import annotations

from codebutler.text.markup import plain
from codebutler_worker.commands.asked import Asked
from codebutler_worker.desk.todo import Todo


def run(asked: Asked) -> Todo:
    """Say so."""
    return asked.reply(f"pong from {plain(asked.settings.name)}")
