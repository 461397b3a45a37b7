"""Runs are stopped and continued, conversations begun anew: ``!stop`` ``!kill`` ``!continue`` ``!new`` ``!reset``."""

from __future__ import annotations

from dataclasses import replace

from codebutler.config.permission import admitted, may
from codebutler.config.programs import is_session
from codebutler.domain.message import RETRY_ACTION, Button, said
from codebutler_worker.commands.logs import withdraw
from codebutler_worker.commands.showing import turn_line
from codebutler_worker.commands.table import Invocation
from codebutler_worker.conversation.clicks import can_go_on, go_on
from codebutler_worker.conversation.history import forget_unread
from codebutler_worker.conversation.messages import is_crowded
from codebutler_worker.conversation.parked import drop_parked
from codebutler_worker.conversation.queue import CROWDED, withdraw_turn
from codebutler_worker.present.lines import code, count
from codebutler_worker.present.notices import STILL_CROWDED
from codebutler_worker.runtime.turns import LIVE, Todo, using
from codebutler_worker.store.rows import TurnRow

LISTED = 3
LOOKED_AT = 200
NOTHING_TO_STOP = "Nothing to stop here."
AGAIN = "the second `!stop` in a row ends it."
ELSEWHERE = " Something runs in another thread: `!stop all` stops that too."
UNDER_WAY = "It is already running."
NOTHING_HERE = "Nothing was interrupted here: just reply, and the conversation goes on with all it knows."
NOTHING_TO_CONTINUE = (
    "Nothing here was interrupted or stopped. Reply in a thread to go on with it; `!list` shows the latest."
)
OUTSIDE = "Outside threads every message starts a new conversation: just write."
RESET_OUTSIDE = "Say `!reset` in the thread whose conversation you want to forget."
FORGOTTEN = "Forgotten: the next message here starts a fresh session."
AFTER = " What is running now still finishes."


def stop(asked: Invocation) -> Todo:
    """Ask what runs to end, and force what does not."""
    return _end(asked, forced=False)


def kill(asked: Invocation) -> Todo:
    """Force it at once."""
    return _end(asked, forced=True)


def _end(asked: Invocation, *, forced: bool) -> Todo:
    meant = replace(asked, conversation=None) if asked.argument.lower() == "all" else asked
    queued, parked, live = meant.turns("queued"), meant.turns("parked"), meant.turns(*LIVE)
    for turn in queued:
        withdraw_turn(asked.uow, turn)
    for turn in parked:
        drop_parked(asked.uow, turn)
    logs = withdraw(asked.uow, meant.conversation)
    if not (queued or live or parked or logs):
        others = replace(asked, conversation=None).turns("queued", "parked", *LIVE)
        return asked.reply(NOTHING_TO_STOP + (ELSEWHERE if others else ""))
    verb = "Killing" if forced else "Stopping"
    elsewhere = meant.conversation is None
    # Who stops everything wants sessions to end, too.
    sessions = sum(is_session(asked.settings.config, turn.agent) for turn in live)
    sessions = 0 if forced or (elsewhere and asked.user) else sessions
    ending = len(live) - sessions
    parts = [f"{verb} {count(ending, 'run')}."] if ending else []
    parts += [f"Sent Ctrl-C to {count(sessions, 'session')}; {AGAIN}"] if sessions else []
    parts += [f"Withdrew {len(queued)} queued."] if queued else []
    parts += [f"Dropped {len(parked)} parked."] if parked else []
    parts += [f"Stopped sending the log {session}." for session in map(code, logs)]
    asked.reply(f"🛑 {' '.join(parts)}")
    return Todo(
        stop=tuple(turn.id for turn in live), forced=forced, stopped_by=asked.user if elsewhere else ""
    )


def resume(asked: Invocation) -> Todo:
    """In a thread its last turn; elsewhere the newest that can go on, by itself if there is only one."""
    if asked.conversation is not None and asked.turns("queued", *LIVE):
        return asked.reply(UNDER_WAY)
    found = [turn for turn in asked.latest(LOOKED_AT) if can_go_on(turn)]
    if not found:
        return asked.reply(NOTHING_TO_CONTINUE if asked.conversation is None else NOTHING_HERE)
    if len(found) == 1:
        return _continue(asked, found[0])
    for turn in found[:LISTED]:
        button = Button("Continue", RETRY_ACTION, turn.id, "primary")
        asked.reply(said(turn_line(asked.uow, turn), button))
    if len(found) > LISTED:
        asked.reply(f"… and {len(found) - LISTED} more: say `!continue` in their threads.")
    return Todo()


def _continue(asked: Invocation, turn: TurnRow) -> Todo:
    where = using(asked.settings.config, turn.channel_id, turn.agent)
    decision = may(admitted(asked.user), "continue", where)
    if not decision.allowed:
        return asked.reply(decision.told)
    if turn.reason == CROWDED and is_crowded(asked.uow, asked.settings.config, asked.user):
        return asked.reply(STILL_CROWDED)
    line = turn_line(asked.uow, turn)
    go_on(asked.uow, turn, asked.user)
    return asked.reply(f"▶ Going on with {line}") if asked.conversation is None else Todo()


def new(asked: Invocation) -> Todo:
    """Start anew in this conversation."""
    return _forget(asked, OUTSIDE)


def reset(asked: Invocation) -> Todo:
    """Forget this conversation's sessions."""
    return _forget(asked, RESET_OUTSIDE)


def _forget(asked: Invocation, outside: str) -> Todo:
    if asked.conversation is None:
        return asked.reply(outside)
    asked.uow.sessions.forget(asked.conversation)
    forget_unread(asked.uow, asked.conversation)
    # What waits to go on with a session that is forgotten would begin anew by itself.
    for turn in asked.turns("parked"):
        drop_parked(asked.uow, turn)
    told = asked.reply(FORGOTTEN + (AFTER if asked.turns(*LIVE) else ""))
    return replace(told, forgotten=(asked.conversation,))
