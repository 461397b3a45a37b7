"""A session's log on its way into a thread: whole, in numbered parts where it is long, each without secrets.

Sent a part at a time: the next is made when the chat has taken the one before, so that neither memory nor the store
ever holds two. How far it has come is in the command's row: a restart goes on there, ``!stop`` takes the row away.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace

from codebutler.domain.message import Message, said
from codebutler.text.redact import Redactor
from codebutler_worker.agents.record import SESSIONS, OpenLog, SessionLogs
from codebutler_worker.desk.deferred import Attachment, Reply, say_line, sent_as, told_over
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.draft import Draft
from codebutler_worker.media.kinds import size
from codebutler_worker.present import pieces
from codebutler_worker.present.lines import code
from codebutler_worker.present.pieces import Pieces
from codebutler_worker.store.rows import DeferredRow

WHOLE_BYTES = 20_000_000
"""A longer one comes in parts."""
MAX_PARTS = 25
"""At once: more would bury the thread."""
STEP = "part"
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class Sending:
    """Which parts of a log are wanted, and the next one of them. ``size_bytes``: as long as it was when asked for."""

    session: str
    size_bytes: int
    first: int
    last: int
    next: int

    @property
    def total(self) -> int:
        """How many parts there are."""
        return parts_in(self.size_bytes)

    @property
    def argument(self) -> str:
        """As it is kept in the command's row."""
        return f"{STEP} {self.session} {self.size_bytes} {self.first} {self.last} {self.next}"

    @property
    def rest(self) -> str:
        """What to say to get what has not come."""
        return f"`!logs {self.session} {_span(self.next, self.last)}` sends the rest."


def of(argument: str) -> Sending:
    """The sending that a command's row keeps."""
    _, session, *numbers = argument.split()
    size_bytes, first, last, following = map(int, numbers)
    return Sending(session, size_bytes, first, last, following)


def parts_in(size_bytes: int) -> int:
    """How many files a log of this size becomes."""
    return 1 if size_bytes <= WHOLE_BYTES else -(-size_bytes // _grid())


def begin(logs: SessionLogs, session: str, wanted: str, redactor: Redactor) -> Reply:
    """The log, where it is short; else the line about its parts, which come one after the other. ``wanted``: which
    parts, as ``3`` or ``3-7``; "" = all. Raises OSError."""
    with logs.reader(session) as log:
        total = parts_in(log.size)
        asked = _RANGE.fullmatch(wanted or f"1-{total}")
        first = int(asked[1]) if asked else 0
        last = int(asked[2] or first) if asked else 0
        if not 1 <= first <= last <= total:
            return Reply((said(f"{_head(session, log.size)}, has {_count(total)}, numbered from 1."),))
        if last - first >= MAX_PARTS:
            return Reply((said(_too_many(session, log.size, total)),))
        sending = Sending(session, log.size, first, last, first)
        if total == 1:
            return Reply((said(_head(session, log.size)),), (_part(log, sending, redactor),))
        return Reply(line=_going_on(sending), then=sending.argument)


async def go_on(desk: Desk, logs: SessionLogs, command: DeferredRow) -> Reply:
    """The next part, if the one before was taken."""
    sending = of(command.argument)
    before = sent_as(command.id, str(sending.next - 1))
    await desk.outbox.settled(before)
    refused = await desk.commit(lambda draft: _refused(draft, before))
    if refused:
        sending = replace(sending, next=sending.next - 1)
        return Reply(line=_ended(sending, f"❌ The chat refused part {sending.next} ({code(refused, 60)})."))
    if sending.next > sending.last:
        return Reply(line=said(_all_here(sending)))
    try:
        file = await asyncio.to_thread(_read, logs, sending, desk.redactor)
    except OSError as error:
        return Reply(line=_ended(sending, f"❌ It cannot be read any more: {error.strerror or error}."))
    return Reply(
        files=(file,), line=_going_on(sending), then=replace(sending, next=sending.next + 1).argument
    )


def withdraw(draft: Draft, conversation: str | None = None) -> list[str]:
    """Send no more of the logs that are on their way into a conversation, or anywhere; returns their sessions."""
    sessions = []
    for command in draft.uow.deferred.all():
        if conversation in (None, command.conversation) and command.argument.startswith(f"{STEP} "):
            sending = of(command.argument)
            sessions.append(sending.session)
            draft.uow.deferred.done(command.id)
            say_line(draft, command, _ended(sending, "🛑 Stopped."))
            told_over(draft, command, "stopped")
    return sessions


def _refused(draft: Draft, op_id: str) -> str:
    row = draft.uow.outbox.get(op_id)
    return (row.code or "refused") if row is not None and row.state == "failed" else ""


def _read(logs: SessionLogs, sending: Sending, redactor: Redactor) -> Attachment:
    with logs.reader(sending.session) as log:
        return _part(log, sending, redactor)


def _part(log: OpenLog, sending: Sending, redactor: Redactor) -> Attachment:
    number, total = sending.next, sending.total
    record = Pieces(log.read, sending.size_bytes, redactor)
    start = record.cut((number - 1) * _grid())
    end = sending.size_bytes if number == total else record.cut(number * _grid())
    width = max(2, len(str(total)))
    named = f".part-{number:0{width}}-of-{total:0{width}}" if total > 1 else ""
    name = f"{sending.session}{named}.log"
    return Attachment(name, b"".join(record.redacted(start, end)), name, str(number))


def _grid() -> int:
    """Where parts end, or a bit before: none is longer than WHOLE_BYTES."""
    return WHOLE_BYTES - pieces.SEARCHED_BYTES


def _head(session: str, size_bytes: int) -> str:
    return f"📎 {code(session)}, {size(size_bytes)}"


def _count(parts: int) -> str:
    return f"{parts} part{'s' if parts > 1 else ''}"


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else f"{first}"


def _going_on(sending: Sending) -> Message:
    head = f"{_head(sending.session, sending.size_bytes)}, comes in {_count(sending.total)}."
    if sending.first > 1 or sending.last < sending.total:
        head += f" You get {_span(sending.first, sending.last)}."
    return said(f"{head} Sending part {sending.next} of {sending.total}… `!stop` ends it.")


def _all_here(sending: Sending) -> str:
    which = _span(sending.first, sending.last)
    if sending.first > 1 or sending.last < sending.total:
        return f"{_head(sending.session, sending.size_bytes)}: part {which} of {sending.total}."
    joined = f"`cat {sending.session}.part-*.log` puts them together."
    return f"{_head(sending.session, sending.size_bytes)}, in {_count(sending.total)}. {joined}"


def _ended(sending: Sending, why: str) -> Message:
    """Not all of it has come."""
    here = sending.next - sending.first
    came = f" Of {_count(sending.total)}, {_span(sending.first, sending.next - 1)} came." if here else ""
    rest = f" {sending.rest}" if sending.next <= sending.last else ""
    return said(f"{_head(sending.session, sending.size_bytes)}. {why}{came}{rest}")


def _too_many(session: str, size_bytes: int, total: int) -> str:
    ways = (
        f"`!logs {session} 1-{MAX_PARTS}` sends its beginning, "
        f"`!logs {session} {total - MAX_PARTS + 1}-{total}` its end"
    )
    return (
        f"{_head(session, size_bytes)}, would be {_count(total)}; at most {MAX_PARTS} come at once. {ways}, and "
        f"`!logs tail N` shows its last lines. All of it is `{SESSIONS}/{session}.log` in the repository."
    )
