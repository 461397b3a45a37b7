"""``!stop`` and ``!kill``: end what runs, withdraw what waits."""

from __future__ import annotations

from dataclasses import replace

from codebutler_worker.commands.asked import Asked
from codebutler_worker.conversation.queueing import Todo, withdraw_turn
from codebutler_worker.conversation.states import LIVE
from codebutler_worker.present.lines import count

ALL = "all"
NOTHING = "Nothing to stop here."
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
    if not queued and not live:
        others = replace(asked, conversation=None).turns("queued", *LIVE)
        return asked.reply(NOTHING + (ELSEWHERE if others else ""))
    verb = "Killing" if forced else "Stopping"
    parts = [f"{verb} {count(len(live), 'turn')}."] if live else []
    parts += [f"Withdrew {len(queued)} queued."] if queued else []
    asked.reply(f"🛑 {' '.join(parts)}")
    elsewhere = meant.conversation is None
    return Todo(
        stop=tuple(turn.id for turn in live), forced=forced, stopped_by=asked.user if elsewhere else ""
    )
