"""What a start finds of an earlier life: turns that ran are interrupted now, and their threads are asked.

Nothing runs again by itself: an agent run is not repeatable, and nobody knows how far it came. In a store that is a day
old, that holds for what waits, too.
"""

from __future__ import annotations

from codebutler.domain.message import said
from codebutler.platform.backups import Restored
from codebutler.protocol.messages import Audit
from codebutler_worker.agents.record import session_of
from codebutler_worker.conversation.asking.approvals import NOT_RUN, close_all
from codebutler_worker.conversation.clicks import request_of
from codebutler_worker.conversation.marks import end_turn
from codebutler_worker.desk.draft import Draft, Place, place_of
from codebutler_worker.desk.states import LIVE, move
from codebutler_worker.present.notices import interrupted, program_interrupted
from codebutler_worker.present.progress import SIGNS


def recover(draft: Draft, programs: frozenset[str] = frozenset()) -> list[Audit]:
    """Mark what was running as interrupted, and ask. Returns the record of each such turn.

    A turn of ``programs`` has failed: a command cannot be gone on with, and nobody shall run it twice by a click.
    """
    records = []
    found = draft.uow.turns.in_states(*LIVE)
    for turn in found:
        close_all(draft, turn.id, NOT_RUN)
        is_program = turn.agent in programs
        state = move(turn.state, "fail" if is_program else "interrupt")
        draft.uow.turns.update(turn.id, state=state, finished_at=draft.stamp)
        place = place_of(turn)
        if turn.progress_op_id:
            draft.edit(place, turn.progress_op_id, said(f"{SIGNS['interrupted']} interrupted"))
        if is_program:
            last = draft.post(place, program_interrupted(request_of(draft, turn), session_of(turn.id)))
            end_turn(draft, turn, "failed", after=last)
        else:
            end_turn(draft, turn, "interrupted")
            asked = interrupted(turn.id, request_of(draft, turn), turn.result)
            draft.post(place, asked, mention=turn.user_id)
        records.append(
            Audit(
                user=turn.user_id,
                thread=turn.thread_ts,
                kind=turn.agent,
                text=request_of(draft, turn),
                decision=state,
            )
        )
    return records


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
