"""``!stop`` and ``!kill``: end what runs, withdraw what waits."""

from __future__ import annotations

from dataclasses import replace

from codebutler.config.programs import is_session
from codebutler_worker.commands import sending
from codebutler_worker.commands.asked import Asked
from codebutler_worker.conversation.parked import drop_parked
from codebutler_worker.conversation.queue import withdraw_turn
from codebutler_worker.desk.states import LIVE
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import code, count

ALL = "all"
NOTHING = "Nothing to stop here."
AGAIN = "the second `!stop` in a row ends it."
ELSEWHERE = " Something runs in another thread: `!stop all` stops that too."


def stop(asked: Asked) -> Todo:
    """Ask what runs to end, and force what does not."""
    return _end(asked, forced=False)


def kill(asked: Asked) -> Todo:
    """Force it at once."""
    return _end(asked, forced=True)


def _end(asked: Asked, *, forced: bool) -> Todo:
    meant = replace(asked, conversation=None) if asked.argument.lower() == ALL else asked
    queued, live = meant.turns("queued"), meant.turns(*LIVE)
    for turn in queued:
        withdraw_turn(asked.draft, turn)
    parked = meant.turns("parked")
    for turn in parked:
        drop_parked(asked.draft, turn)
    logs = sending.withdraw(asked.draft, meant.conversation)
    if not (queued or live or parked or logs):
        others = replace(asked, conversation=None).turns("queued", "parked", *LIVE)
        return asked.reply(NOTHING + (ELSEWHERE if others else ""))
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
    parts += [f"No more of the log of {session}." for session in map(code, logs)]
    asked.reply(f"🛑 {' '.join(parts)}")
    return Todo(
        stop=tuple(turn.id for turn in live), forced=forced, stopped_by=asked.user if elsewhere else ""
    )
