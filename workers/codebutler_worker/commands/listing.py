"""``!list``: the latest conversations, each with its state, its age and a link."""

from __future__ import annotations

from codebutler_worker.commands.asked import Asked
from codebutler_worker.commands.describe import turn_line
from codebutler_worker.desk.todo import Todo
from codebutler_worker.store.rows import TurnRow

LISTED = 10
LOOKED_AT = 200


def run(asked: Asked) -> Todo:
    """The newest turn of each conversation, those that are under way first."""
    latest: dict[str, TurnRow] = {}
    for turn in asked.draft.uow.turns.newest(LOOKED_AT):
        latest.setdefault(turn.conversation, turn)
    turns = sorted(latest.values(), key=lambda turn: turn.state not in ("running", "waiting", "queued"))
    if not turns:
        return asked.reply("No conversations here yet: write something.")
    lines = [turn_line(asked.draft, turn) for turn in turns[:LISTED]]
    more = [f"… and {len(turns) - LISTED} more"] if len(turns) > LISTED else []
    return asked.reply("\n".join(["The latest conversations here:", *lines, *more]))
