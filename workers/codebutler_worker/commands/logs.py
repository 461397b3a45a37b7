"""``!logs``: the output of sessions, as a file or as its last lines; and a list of sessions.

A long log is sent in numbered parts without secrets, one at a time: the next part is made once the chat has accepted
the last one, so neither memory nor the store ever holds two. The command's row stores the progress, so it continues
after a restart; ``!stop`` deletes the row.
"""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from codebutler.domain.message import Message, said
from codebutler.text.markup import plain
from codebutler.text.redact import Redactor
from codebutler.text.wording import count, format_size, one_line, span
from codebutler_worker.agents.backend import Output
from codebutler_worker.agents.session_logs import SESSIONS, OpenLog, SessionLogs, session_of
from codebutler_worker.agents.shell.screen import TerminalScreen
from codebutler_worker.commands.table import Invocation
from codebutler_worker.present import pieces
from codebutler_worker.present.lines import code
from codebutler_worker.present.terminal import TerminalPages, shown
from codebutler_worker.runtime.deferred import Attachment, CommandReply, say_line, sent_as, tell_ended
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Todo, words_of
from codebutler_worker.store.rows import DeferredRow, TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork

SEARCHED_TURNS = 50
LISTED = 40
LISTED_HOURS = 24
TAIL_LINES = "20"
"""The default number of lines."""
TAIL_BYTES = 256 * 2**10
MAX_TAIL_BYTES = 2**20
WHOLE_BYTES = 20_000_000
"""A longer log is sent in parts."""
MAX_PARTS = 25
"""Sent at once: more would flood the thread."""
NO_LOG = "No session here has left a log yet."
NO_OUTPUT = "No session here has written any output yet."
NONE_LISTED = f"No session has run here in the last {LISTED_HOURS} hours."
NOT_PRIVATELY = "A file cannot be shown to you alone: say `!logs` in the channel."
WHOLE = (
    "everything that this run's program printed, with secrets removed. `!logs tail` shows its end, `!logs list` other "
    "runs."
)
COMMAND = "logs"
_PART = "part"
"""First word of the argument of a command that sends parts."""
_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


def run(invocation: Invocation) -> Todo:
    """The list comes from the store; logs are files that have to be read."""
    words = invocation.argument.split()
    if words[:1] == ["list"]:
        return invocation.reply(_list(invocation))
    candidates = [session_of(turn.id) for turn in invocation.newest(SEARCHED_TURNS) if turn.started_at]
    if words[:1] == ["tail"]:
        return invocation.defer(" ".join(["tail", *(words[1:] or [TAIL_LINES]), *candidates]))
    if len(words) == 2:
        return invocation.defer(f"parts {words[1]} {words[0]}")
    return invocation.defer(" ".join(["send", *(words or candidates)]))


def _list(invocation: Invocation) -> str:
    since = (invocation.uow.now - timedelta(hours=LISTED_HOURS)).isoformat()
    newest = invocation.newest(LISTED + 1)
    turns = [turn for turn in newest if turn.started_at and turn.created_at >= since]
    if not turns:
        return NONE_LISTED
    rest = f", the newest {LISTED}" if len(turns) > LISTED else ""
    lines = [_session_line(invocation.uow, turn) for turn in turns[:LISTED]]
    return "\n".join([f"Sessions of the last {LISTED_HOURS} hours{rest}:", *lines])


def _session_line(uow: UnitOfWork, turn: TurnRow) -> str:
    words = plain(one_line(words_of(uow, turn, 60)))
    ended = datetime.fromisoformat(turn.finished_at) if turn.finished_at else uow.now
    took = span((ended - datetime.fromisoformat(turn.started_at or turn.created_at)).total_seconds())
    parts = (code(session_of(turn.id)), turn.state, took, plain(turn.agent), words)
    return f"• {' · '.join(part for part in parts if part)}"


async def answer(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """Read the first candidate that has a log; of a long one, the next part."""
    what, *words = command.argument.split()
    logs = SessionLogs.of(runtime.settings)
    if what == _PART:
        return await _next_part(runtime, logs, command)
    if what == "tail":
        pages = TerminalPages(runtime.settings.config.output.max_chars_per_message, runtime.redactor)
        return await asyncio.to_thread(_tail, logs, words[1:], int(words[0]), pages)
    parts = words.pop(0) if what == "parts" else ""
    readable = await asyncio.to_thread(lambda: [each for each in words if logs.size_of(each) is not None])
    if not readable:
        problem = f"There is no log of a session {code(words[0], 40)}." if len(words) == 1 else NO_LOG
        return CommandReply((said(f"{problem} `!logs list` shows the recent ones."),))
    if command.only_for:
        return CommandReply((said(NOT_PRIVATELY),))
    try:
        return await asyncio.to_thread(_start_transfer, logs, readable[0], parts, runtime.redactor)
    except OSError as error:
        return CommandReply((said(_unreadable(readable[0], error)),))


def _tail(logs: SessionLogs, sessions: list[str], lines: int, pages: TerminalPages) -> CommandReply:
    """The last lines of output of the newest session that has any, as a terminal would show them."""
    # Imported here because not every worker needs a terminal emulator in memory.
    from codebutler_worker.agents.shell.output import returning

    for session in sessions:
        try:
            output = logs.output(session, min(MAX_TAIL_BYTES, TAIL_BYTES + 200 * lines))
        except FileNotFoundError:
            continue
        except OSError as error:
            return CommandReply((said(_unreadable(session, error)),))
        terminal = TerminalScreen()
        terminal.feed(returning(output))
        screen = terminal.take()
        pages.take(Output(settled=(*screen.settled, *screen.live)[-max(lines, 1) :]))
        if messages := tuple(said(shown(page, session)) for page in pages.due() if page.lines):
            return CommandReply(messages)
    return CommandReply((said(NO_OUTPUT),))


def _unreadable(session: str, error: OSError) -> str:
    return f"The log {code(session)} cannot be read: {error.strerror or error}."


# A log being sent to a thread.


class LogTransfer(Struct, frozen=True):
    """The requested parts of a log, and the next one to send. ``size_bytes``: its length when requested."""

    session: str
    size_bytes: int
    first: int
    last: int
    next: int

    @property
    def total(self) -> int:
        """The number of parts."""
        return _part_count(self.size_bytes)

    @property
    def argument(self) -> str:
        """The form stored in the command's row."""
        return f"{_PART} {self.session} {self.size_bytes} {self.first} {self.last} {self.next}"

    def line(self, text: str) -> Message:
        """The command as one line that names the log."""
        return said(f"{_head(self.session, self.size_bytes)}{text}")


def transfer_of(argument: str) -> LogTransfer:
    """The transfer from a command's row."""
    _, session, *numbers = argument.split()
    return LogTransfer(session, *map(int, numbers))


def _part_count(size_bytes: int) -> int:
    return 1 if size_bytes <= WHOLE_BYTES else -(-size_bytes // _part_bytes())


def _part_bytes() -> int:
    """Where parts end, or slightly earlier: none is longer than WHOLE_BYTES."""
    return WHOLE_BYTES - pieces.SEARCHED_BYTES


def _start_transfer(logs: SessionLogs, session: str, parts: str, redactor: Redactor) -> CommandReply:
    """The log if it is short; otherwise the line about its parts, which follow one by one. ``parts``: the parts, as
    ``3`` or ``3-7``; "" = all. Raises OSError."""
    with logs.reader(session) as log:
        total, head = _part_count(log.size), _head(session, log.size)
        part_range = _RANGE.fullmatch(parts or f"1-{total}")
        first = int(part_range[1]) if part_range else 0
        last = int(part_range[2] or first) if part_range else 0
        if not 1 <= first <= last <= total:
            return CommandReply((said(f"{head}, has {count(total, 'part')}, numbered from 1."),))
        if last - first >= MAX_PARTS:
            return CommandReply((said(_too_many(session, head, total)),))
        transfer = LogTransfer(session, log.size, first, last, first)
        if total == 1:
            return CommandReply((said(f"{head}: {WHOLE}"),), (_read_part(log, transfer, redactor),))
        return CommandReply(line=_progress_line(transfer), then=transfer.argument)


async def _next_part(runtime: Runtime, logs: SessionLogs, command: DeferredRow) -> CommandReply:
    """The next part, once the chat has accepted the last one."""
    transfer = transfer_of(command.argument)
    last_operation = sent_as(command.id, str(transfer.next - 1))
    await runtime.outbox.settled(last_operation)
    sent = await runtime.commit(lambda uow: uow.outbox.get(last_operation))
    if sent is not None and sent.state == "failed":
        transfer = replace(transfer, next=transfer.next - 1)
        why = f"❌ The chat refused part {transfer.next} ({code(sent.code or 'refused', 60)})."
        return CommandReply(line=_aborted_line(transfer, why))
    if transfer.next > transfer.last:
        return CommandReply(line=_completed_line(transfer))
    try:
        file = await asyncio.to_thread(_read, logs, transfer, runtime.redactor)
    except OSError as error:
        why = f"❌ It can no longer be read: {error.strerror or error}."
        return CommandReply(line=_aborted_line(transfer, why))
    then = replace(transfer, next=transfer.next + 1).argument
    return CommandReply(files=(file,), line=_progress_line(transfer), then=then)


def stop_transfers(uow: UnitOfWork, conversation: str | None = None) -> list[str]:
    """Stop sending logs to a conversation, or anywhere; returns their sessions."""
    sessions = []
    for command in uow.deferred.find(name=COMMAND):
        if conversation in (None, command.conversation) and command.argument.startswith(f"{_PART} "):
            transfer = transfer_of(command.argument)
            sessions.append(transfer.session)
            uow.deferred.delete(id=command.id)
            say_line(uow, command, _aborted_line(transfer, "🛑 Stopped."))
            tell_ended(uow, command, "stopped")
    return sessions


def _read(logs: SessionLogs, transfer: LogTransfer, redactor: Redactor) -> Attachment:
    with logs.reader(transfer.session) as log:
        return _read_part(log, transfer, redactor)


def _read_part(log: OpenLog, transfer: LogTransfer, redactor: Redactor) -> Attachment:
    number, total = transfer.next, transfer.total
    record = pieces.Pieces(log.read, transfer.size_bytes, redactor)
    start = record.cut((number - 1) * _part_bytes())
    end = transfer.size_bytes if number == total else record.cut(number * _part_bytes())
    width = max(2, len(str(total)))
    suffix = f".part-{number:0{width}}-of-{total:0{width}}" if total > 1 else ""
    name = f"{transfer.session}{suffix}.log"
    return Attachment(name, b"".join(record.redacted(start, end)), name, str(number))


def _head(session: str, size_bytes: int) -> str:
    return f"📎 {code(session)}, {format_size(size_bytes)}"


def _format_range(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else f"{first}"


def _progress_line(transfer: LogTransfer) -> Message:
    text = f", comes in {count(transfer.total, 'part')}."
    if transfer.first > 1 or transfer.last < transfer.total:
        text += f" You get {_format_range(transfer.first, transfer.last)}."
    return transfer.line(f"{text} Sending part {transfer.next} of {transfer.total}… `!stop` ends it.")


def _completed_line(transfer: LogTransfer) -> Message:
    if transfer.first > 1 or transfer.last < transfer.total:
        return transfer.line(f": part {_format_range(transfer.first, transfer.last)} of {transfer.total}.")
    joined = f"`cat {transfer.session}.part-*.log` joins them."
    return transfer.line(f", in {count(transfer.total, 'part')}. {joined}")


def _aborted_line(transfer: LogTransfer, why: str) -> Message:
    sent = rest = ""
    if transfer.next > transfer.first:
        sent = f" Sent {_format_range(transfer.first, transfer.next - 1)} of {count(transfer.total, 'part')}."
    if transfer.next <= transfer.last:
        unsent = _format_range(transfer.next, transfer.last)
        rest = f" `!logs {transfer.session} {unsent}` sends the rest."
    return transfer.line(f". {why}{sent}{rest}")


def _too_many(session: str, head: str, total: int) -> str:
    return (
        f"{head}, would take {count(total, 'part')}; at most {MAX_PARTS} are sent at once. "
        f"`!logs {session} 1-{MAX_PARTS}` sends the beginning, "
        f"`!logs {session} {total - MAX_PARTS + 1}-{total}` the end, and `!logs tail N` shows the last lines. "
        f"The whole log is `{SESSIONS}/{session}.log` in the repository."
    )
