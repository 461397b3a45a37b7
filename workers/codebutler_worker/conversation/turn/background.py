"""What a turn's agent has to know before its first word: gathered from the store, the working tree and the chat.

None of it may keep the turn from starting: what cannot be had in time is left out, and the log says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from codebutler.config.schema import Config
from codebutler.errors import CodeButlerError
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft
from codebutler_worker.desk.handover import (
    DIFF_BYTES,
    Exchange,
    missed,
    record_of_thread,
    record_of_turns,
    talks,
)
from codebutler_worker.store.rows import TurnRow


@dataclass(frozen=True, slots=True)
class Missed:
    """What an agent has not heard: other agents' turns, and (``thread_ts``) the thread it was called into."""

    exchanges: tuple[Exchange, ...] = ()
    thread_ts: str = ""


def look_back(
    draft: Draft, turn: TurnRow, session_id: str | None, config: Config, *, unread: int = 0
) -> Missed:
    """What of this turn's past its agent does not know; it tells the messages of ``unread`` turns before it itself."""
    if not talks(config, turn.agent):
        return Missed()
    exchanges = missed(draft, turn, session_id, config)
    return Missed(exchanges, "" if session_id or exchanges else _foreign_thread(draft, turn, unread))


async def gather(desk: Desk, found: Missed, before_ts: str, workdir: Path) -> str:
    """The record that goes before the prompt, "" if there is nothing to tell; with it, what differs in ``workdir``."""
    if found.exchanges:
        return record_of_turns(found.exchanges, await _difference(desk, workdir))
    if not found.thread_ts:
        return ""
    told = await desk.threads.read(found.thread_ts, before_ts)
    if told.code:
        desk.report.log("WRN", f"what was said in the thread before is left out: {told.code}")
    return record_of_thread(told.said, told.left_out)


async def _difference(desk: Desk, workdir: Path) -> str:
    try:
        found = await (await desk.agents.tree(workdir)).difference(limit_bytes=DIFF_BYTES)
    except CodeButlerError as error:
        desk.report.log("DBG", f"no diff is handed over: {error}")
        return ""
    cut = "\n(The rest of the diff is left out.)" if found.cut else ""
    return f"{found.stat}\n\n{found.body}{cut}" if found.body.strip() else ""


def _foreign_thread(draft: Draft, turn: TurnRow, unread: int) -> str:
    """The thread, if it was begun by somebody else's message and nothing of it ever came here."""
    rows = draft.uow.messages.of_turn(turn.id)
    own = {row.platform_msg_id for row in rows}
    if not turn.thread_ts or not turn.conversation.endswith(turn.thread_ts) or turn.thread_ts in own:
        return ""
    if draft.uow.messages.get(turn.channel_id, turn.thread_ts) is not None:
        return ""
    turns = draft.uow.turns.newest(unread + 2, turn.conversation)
    return "" if len(turns) > unread + 1 else turn.thread_ts
