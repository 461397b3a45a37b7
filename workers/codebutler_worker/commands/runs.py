"""Stop and continue runs, and start over: ``!stop`` ``!kill`` ``!continue`` ``!new`` ``!reset``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codebutler.config.permission import admitted, may
from codebutler.config.programs import is_session
from codebutler.domain.message import RETRY_ACTION, Button, said
from codebutler.domain.refs import NO_PERSON
from codebutler.text.wording import count
from codebutler_worker.changes.card import STOPPED
from codebutler_worker.changes.pending import withdraw_checks
from codebutler_worker.changes.undo import stop_race_checks
from codebutler_worker.commands.logs import withdraw
from codebutler_worker.commands.showing import turn_line
from codebutler_worker.commands.table import Invocation
from codebutler_worker.commands.terminal import adopt, answer_adopt
from codebutler_worker.conversation.clicks import can_go_on, go_on
from codebutler_worker.conversation.end import stopping
from codebutler_worker.conversation.history import forget_unread
from codebutler_worker.conversation.parked import drop_parked
from codebutler_worker.conversation.queue import CROWDED, withdraw_turn
from codebutler_worker.present.lines import code
from codebutler_worker.present.notices import STILL_CROWDED
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import LIVE, Todo, using
from codebutler_worker.store.rows import DeferredRow, TurnRow

LISTED = 3
LOOKED_AT = 200
NOTHING_TO_STOP = "Nothing to stop here."
STOPPING = "🛑 Already stopping."
AGAIN = "a second `!stop` in a row ends it."
ELSEWHERE = " Something is running in another thread: `!stop all` stops that too."
UNDER_WAY = "It is already running."
NOTHING_HERE = "Nothing was interrupted here: just reply, and the conversation continues where it left off."
NOTHING_TO_CONTINUE = (
    "Nothing here was interrupted or stopped. Reply in a thread to continue it; `!list` shows the latest."
)
OUTSIDE = "Outside threads every message starts a new conversation: just write."
RESET_OUTSIDE = "Say `!reset` in the thread whose conversation you want to forget."
FORGOTTEN = "Your next message here starts a new session: the agent forgets this conversation."
AFTER = " What is running now still finishes."


def stop(asked: Invocation) -> Todo:
    """Ask runs to stop; kill those that do not."""
    return _end(asked, forced=False)


def kill(asked: Invocation) -> Todo:
    """Kill them at once."""
    return _end(asked, forced=True)


def _end(asked: Invocation, *, forced: bool) -> Todo:
    meant = replace(asked, conversation=None) if asked.argument.lower() == "all" else asked
    queued, parked, live = meant.turns("queued"), meant.turns("parked"), meant.turns(*LIVE)
    for turn in queued:
        withdraw_turn(asked.uow, turn)
    for turn in parked:
        drop_parked(asked.uow, turn)
    logs = withdraw(asked.uow, meant.conversation)
    checks = withdraw_checks(asked.uow, meant.conversation, STOPPED)
    checks += stop_race_checks(asked.uow, meant.conversation)
    if not (queued or live or parked or logs or checks):
        others = replace(asked, conversation=None).turns("queued", "parked", *LIVE)
        return asked.reply(NOTHING_TO_STOP + (ELSEWHERE if others else ""))
    verb = "Killing" if forced else "Stopping"
    elsewhere = meant.conversation is None
    # Stopping everything includes sessions.
    sessions = sum(is_session(asked.settings.config, turn.agent) for turn in live)
    sessions = 0 if forced or (elsewhere and asked.user) else sessions
    ending = len(live) - sessions
    parts = [f"{verb} {count(ending, 'run')}."] if ending else []
    parts += [f"Sent Ctrl-C to {count(sessions, 'session')}; {AGAIN}"] if sessions else []
    parts += [f"Withdrew {len(queued)} queued."] if queued else []
    parts += [f"Dropped {len(parked)} parked."] if parked else []
    parts += ["Stopped the checks."] if checks else []
    parts += [f"Stopped sending the log {session}." for session in map(code, logs)]
    _tell(asked, live if not forced and len(parts) == ending == 1 else (), f"🛑 {' '.join(parts)}")
    return Todo(
        stop=tuple(turn.id for turn in live),
        forced=forced,
        stopped_by=asked.user if elsewhere else NO_PERSON,
        withdrawn=checks,
    )


def _tell(asked: Invocation, live: Sequence[TurnRow], text: str) -> None:
    """If all that ends is one run in its own thread, the run's end replaces the reply: one message says both."""
    only = next(
        (turn for turn in live if turn.thread == asked.place.thread and not asked.place.only_for), None
    )
    if only is None:
        asked.reply(text)
    elif asked.uow.outbox.get(stopping(only.id)) is not None:
        asked.reply(STOPPING)
    else:
        asked.uow.post(asked.place, text, op_id=stopping(only.id))


def resume(asked: Invocation) -> Todo:
    """In a thread, its last run; elsewhere the newest one that can continue, at once if it is the only one. A named
    session is taken over."""
    if asked.argument:
        return adopt(asked)
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


async def answer_resume(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Deferred: find the session."""
    return await answer_adopt(runtime, command)


def _continue(asked: Invocation, turn: TurnRow) -> Todo:
    where = using(asked.settings.config, turn.channel_id, turn.agent)
    decision = may(admitted(asked.user), "continue", where)
    if not decision.allowed:
        return asked.reply(decision.told)
    most = asked.settings.config.agent.queue_per_user
    if turn.reason == CROWDED and asked.uow.messages.is_crowded(asked.user, most):
        return asked.reply(STILL_CROWDED)
    line = turn_line(asked.uow, turn)
    go_on(asked.uow, turn, asked.user)
    return asked.reply(f"▶ Continuing {line}") if asked.conversation is None else Todo()


def new(asked: Invocation) -> Todo:
    """Start over in this conversation."""
    return _forget(asked, OUTSIDE)


def reset(asked: Invocation) -> Todo:
    """Forget this conversation's sessions."""
    return _forget(asked, RESET_OUTSIDE)


def _forget(asked: Invocation, outside: str) -> Todo:
    if asked.conversation is None:
        return asked.reply(outside)
    asked.uow.sessions.forget(asked.conversation)
    forget_unread(asked.uow, asked.conversation)
    # A parked run would resume the forgotten session by itself.
    for turn in asked.turns("parked"):
        drop_parked(asked.uow, turn)
    told = asked.reply(FORGOTTEN + (AFTER if asked.turns(*LIVE) else ""))
    return replace(told, forgotten=(asked.conversation,))
