"""``!new`` and ``!reset``: the next message starts with a fresh session."""

from __future__ import annotations

from dataclasses import replace

from codebutler_worker.commands.asked import Asked
from codebutler_worker.conversation.parked import drop_parked
from codebutler_worker.conversation.turn.history import forget_unread
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Todo

OUTSIDE = "Outside threads every message begins a fresh conversation: just write."
RESET_OUTSIDE = "Say `!reset` in the thread whose conversation is to be forgotten."
FORGOTTEN = "Forgotten: the next message here starts a fresh session."
AFTER = " What runs now still ends."


def new(asked: Asked) -> Todo:
    """Begin afresh in this conversation."""
    return _forget(asked, OUTSIDE)


def reset(asked: Asked) -> Todo:
    """Forget this conversation's sessions."""
    return _forget(asked, RESET_OUTSIDE)


def _forget(asked: Asked, outside: str) -> Todo:
    if asked.conversation is None:
        return asked.reply(outside)
    asked.draft.uow.sessions.forget(asked.conversation)
    forget_unread(asked.draft, asked.conversation)
    # What waits to go on with a session that is forgotten would begin anew by itself.
    for turn in asked.turns("parked"):
        drop_parked(asked.draft, turn)
    told = asked.reply(FORGOTTEN + (AFTER if asked.turns(*LIVE) else ""))
    return replace(told, forgotten=(asked.conversation,))
