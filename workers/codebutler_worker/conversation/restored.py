"""What a worker does with a store that is a day old: run nothing of it by itself, and say so."""

from __future__ import annotations

from codebutler.disk.backups import Restored
from codebutler_worker.desk.draft import Draft, Place
from codebutler_worker.desk.states import move


def after_restore(draft: Draft, restored: Restored, channel_id: str) -> None:
    """What waits in the backup may have been answered since: it counts as started, so that recovery asks
    instead of running it (again). The channel is told once."""
    for turn in draft.uow.turns.in_states("queued", "parked"):
        draft.uow.turns.update(turn.id, state=move(turn.state, "start"), started_at=draft.stamp)
    draft.post(Place(channel_id, None), notice(restored), value="notice")


def notice(restored: Restored) -> str:
    """What the people in the channel have to know."""
    aside = f" The damaged file is kept as `{restored.aside.name}`." if restored.aside else ""
    return (
        f"⚠️ This repository's store was {'damaged' if restored.aside else 'lost'} and is restored from the "
        f"backup of {restored.taken_at:%Y-%m-%d %H:%M} UTC. What was said here since then is forgotten: "
        f"threads begun later start afresh, and a message that still shows ⏳ or 👀 has to be sent again.{aside}"
    )
