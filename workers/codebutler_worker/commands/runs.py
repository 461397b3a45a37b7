"""Stop and continue runs, and start over: ``!stop`` ``!kill`` ``!continue`` ``!new`` ``!reset``."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from codebutler.config.permission import admitted, may
from codebutler.config.programs import is_session
from codebutler.domain.message import RETRY_ACTION, Button, said
from codebutler.domain.refs import NO_PERSON
from codebutler.text.wording import count
from codebutler_worker.changes.card import STOPPED
from codebutler_worker.changes.pending import withdraw_checks
from codebutler_worker.changes.race import stop_race_checks
from codebutler_worker.commands.logs import stop_transfers
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
from codebutler_worker.runtime.turns import LIVE, Todo, using
from codebutler_worker.store.rows import TurnRow

LISTED = 3
SEARCHED_TURNS = 200
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


def stop(invocation: Invocation) -> Todo:
    """Ask runs to stop; kill those that do not."""
    return _stop_runs(invocation, forced=False)


def kill(invocation: Invocation) -> Todo:
    """Kill them at once."""
    return _stop_runs(invocation, forced=True)


def _stop_runs(invocation: Invocation, *, forced: bool) -> Todo:
    scope = replace(invocation, conversation=None) if invocation.argument.lower() == "all" else invocation
    queued, parked, live = scope.turns("queued"), scope.turns("parked"), scope.turns(*LIVE)
    for turn in queued:
        withdraw_turn(invocation.uow, turn)
    for turn in parked:
        drop_parked(invocation.uow, turn)
    logs = stop_transfers(invocation.uow, scope.conversation)
    checks = withdraw_checks(invocation.uow, scope.conversation, STOPPED)
    checks += stop_race_checks(invocation.uow, scope.conversation)
    if not (queued or live or parked or logs or checks):
        others = replace(invocation, conversation=None).turns("queued", "parked", *LIVE)
        return invocation.reply(NOTHING_TO_STOP + (ELSEWHERE if others else ""))
    verb = "Killing" if forced else "Stopping"
    elsewhere = scope.conversation is None
    # Stopping everything includes sessions.
    sessions = sum(is_session(invocation.settings.config, turn.agent) for turn in live)
    sessions = 0 if forced or (elsewhere and invocation.user) else sessions
    ending = len(live) - sessions
    parts = [f"{verb} {count(ending, 'run')}."] if ending else []
    parts += [f"Sent Ctrl-C to {count(sessions, 'session')}; {AGAIN}"] if sessions else []
    parts += [f"Withdrew {len(queued)} queued."] if queued else []
    parts += [f"Dropped {len(parked)} parked."] if parked else []
    parts += ["Stopped the checks."] if checks else []
    parts += [f"Stopped sending the log {session}." for session in map(code, logs)]
    is_one_run = not forced and len(parts) == ending == 1
    _reply_stopping(invocation, live if is_one_run else (), f"🛑 {' '.join(parts)}")
    return Todo(
        stop=tuple(turn.id for turn in live),
        forced=forced,
        stopped_by=invocation.user if elsewhere else NO_PERSON,
        withdrawn=checks,
    )


def _reply_stopping(invocation: Invocation, live: Sequence[TurnRow], text: str) -> None:
    """If all that ends is one run in its own thread, the run's end replaces the reply: one message says both."""
    uow, place = invocation.uow, invocation.place
    only = next((turn for turn in live if turn.thread == place.thread and not place.only_for), None)
    if only is None:
        invocation.reply(text)
    elif uow.outbox.get(stopping(only.id)) is not None:
        invocation.reply(STOPPING)
    else:
        uow.post(place, text, op_id=stopping(only.id))


def resume(invocation: Invocation) -> Todo:
    """In a thread, its last run; elsewhere the newest one that can continue, at once if it is the only one. A named
    session is taken over."""
    if invocation.argument:
        return adopt(invocation)
    if invocation.conversation is not None and invocation.turns("queued", *LIVE):
        return invocation.reply(UNDER_WAY)
    found = [turn for turn in invocation.latest(SEARCHED_TURNS) if can_go_on(turn)]
    if not found:
        return invocation.reply(NOTHING_TO_CONTINUE if invocation.conversation is None else NOTHING_HERE)
    if len(found) == 1:
        return _continue(invocation, found[0])
    for turn in found[:LISTED]:
        button = Button("Continue", RETRY_ACTION, turn.id, "primary")
        invocation.reply(said(turn_line(invocation.uow, turn), button))
    if len(found) > LISTED:
        invocation.reply(f"… and {len(found) - LISTED} more: say `!continue` in their threads.")
    return Todo()


answer_resume = answer_adopt


def _continue(invocation: Invocation, turn: TurnRow) -> Todo:
    where = using(invocation.settings.config, turn.channel_id, turn.agent)
    decision = may(admitted(invocation.user), "continue", where)
    if not decision.allowed:
        return invocation.reply(decision.message)
    limit = invocation.settings.config.agent.queue_per_user
    if turn.reason == CROWDED and invocation.uow.messages.is_crowded(invocation.user, limit):
        return invocation.reply(STILL_CROWDED)
    line = turn_line(invocation.uow, turn)
    go_on(invocation.uow, turn, invocation.user)
    return invocation.reply(f"▶ Continuing {line}") if invocation.conversation is None else Todo()


def new(invocation: Invocation) -> Todo:
    """Start over in this conversation."""
    return _start_over(invocation, OUTSIDE)


def reset(invocation: Invocation) -> Todo:
    """Forget this conversation's sessions."""
    return _start_over(invocation, RESET_OUTSIDE)


def _start_over(invocation: Invocation, outside: str) -> Todo:
    if invocation.conversation is None:
        return invocation.reply(outside)
    invocation.uow.sessions.forget(invocation.conversation)
    forget_unread(invocation.uow, invocation.conversation)
    # A parked run would resume the forgotten session by itself.
    for turn in invocation.turns("parked"):
        drop_parked(invocation.uow, turn)
    todo = invocation.reply(FORGOTTEN + (AFTER if invocation.turns(*LIVE) else ""))
    return replace(todo, forgotten=(invocation.conversation,))
