"""``!continue``: go on with what was interrupted, stopped, or met a limit."""

from __future__ import annotations

from codebutler.config.permission import admitted, may
from codebutler.domain.message import RETRY_ACTION, Button, said
from codebutler_worker.commands.asked import Asked
from codebutler_worker.commands.describe import turn_line
from codebutler_worker.conversation.clicks import can_go_on, go_on
from codebutler_worker.conversation.messages import is_crowded
from codebutler_worker.conversation.queue import CROWDED
from codebutler_worker.desk.naming import using
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.notices import STILL_CROWDED
from codebutler_worker.store.rows import TurnRow

LISTED = 3
LOOKED_AT = 200
UNDER_WAY = "It is under way already."
NOTHING_HERE = "Nothing was interrupted here: just reply, and the conversation goes on with all it knows."
NOTHING = (
    "Nothing here was interrupted or stopped. Reply in a thread to go on with it; `!list` shows the latest."
)


def run(asked: Asked) -> Todo:
    """In a thread its last turn; elsewhere the newest that can go on, by itself if there is only one."""
    if asked.conversation is not None and asked.turns("queued", *LIVE):
        return asked.reply(UNDER_WAY)
    found = _resumable(asked)
    if not found:
        return asked.reply(NOTHING if asked.conversation is None else NOTHING_HERE)
    if len(found) == 1:
        return _continue(asked, found[0])
    for turn in found[:LISTED]:
        line = turn_line(asked.draft, turn)
        asked.reply(said(line, Button("Continue", RETRY_ACTION, turn.id, "primary")))
    if len(found) > LISTED:
        asked.reply(f"… and {len(found) - LISTED} more: say `!continue` in their threads.")
    return Todo()


def _resumable(asked: Asked) -> list[TurnRow]:
    """The newest turn of each conversation, where that one can go on."""
    latest: dict[str, TurnRow] = {}
    for turn in asked.newest(LOOKED_AT):
        latest.setdefault(turn.conversation, turn)
    return [turn for turn in latest.values() if can_go_on(turn)]


def _continue(asked: Asked, turn: TurnRow) -> Todo:
    where = using(asked.settings.config, turn.channel_id, turn.agent)
    decision = may(admitted(asked.user), "continue", where)
    if not decision.allowed:
        return asked.reply(decision.told)
    if turn.reason == CROWDED and is_crowded(asked.draft, asked.settings.config, asked.user):
        return asked.reply(STILL_CROWDED)
    line = turn_line(asked.draft, turn)
    go_on(asked.draft, turn, asked.user)
    if asked.conversation is None:
        asked.reply(f"▶ Going on with {line}")
    return Todo()
