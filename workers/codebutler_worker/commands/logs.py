"""``!logs``: what the programs of sessions wrote, as a file or its last lines; and which sessions there are."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime, timedelta
from pathlib import Path

from codebutler.text.redact import Redactor
from codebutler_worker.agents.backend import Output
from codebutler_worker.agents.record import SESSIONS, SessionLogs, session_of
from codebutler_worker.commands.asked import Asked
from codebutler_worker.commands.describe import words_of
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.errands import Attachment, Reply
from codebutler_worker.desk.todo import Todo
from codebutler_worker.media.kinds import size
from codebutler_worker.present.lines import code, one_line, plain, span
from codebutler_worker.present.progress import Message
from codebutler_worker.present.terminal import Pages, shown
from codebutler_worker.store.rows import ErrandRow, TurnRow

LOOKED_AT = 50
LISTED = 40
LISTED_HOURS = 24
MAX_SENT_BYTES = 20_000_000
PART_BYTES = 8_000_000
"""A part travels in one frame between worker and parent."""
TAIL_LINES = "20"
"""Where nobody says how many."""
TAIL_BYTES = 256 * 2**10
MAX_TAIL_BYTES = 2**20
NO_LOG = "No session here has left a log yet."
NONE_LISTED = f"No session has run here in the last {LISTED_HOURS} hours."
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[()][0-9A-B]|[=>78])")
BY_MESSAGE = "A file cannot be for you alone: say `!logs` in the channel."


def run(asked: Asked) -> Todo:
    """The list is in the store; logs are on disk and have to be read."""
    words = asked.argument.split()
    if words[:1] == ["list"]:
        return asked.reply(_list(asked))
    candidates = [session_of(turn.id) for turn in asked.newest(LOOKED_AT) if turn.started_at is not None]
    if words[:1] == ["tail"]:
        return asked.errand(" ".join(["tail", *(words[1:] or [TAIL_LINES]), *candidates]))
    return asked.errand(" ".join(["send", *(words or candidates)]))


def _list(asked: Asked) -> str:
    since = (asked.draft.now - timedelta(hours=LISTED_HOURS)).isoformat()
    turns = [
        turn for turn in asked.newest(LISTED) if turn.started_at is not None and turn.created_at >= since
    ]
    if not turns:
        return NONE_LISTED
    return "\n".join(["Sessions of the last 24 hours:", *(_line(asked, turn) for turn in turns)])


def _line(asked: Asked, turn: TurnRow) -> str:
    words = plain(one_line(words_of(asked.draft, turn, 60)))
    took = _duration(turn, asked.draft.now)
    parts = (code(session_of(turn.id)), turn.state, took, plain(turn.agent), words)
    return f"• {' · '.join(part for part in parts if part)}"


def _duration(turn: TurnRow, now: datetime) -> str:
    ended = datetime.fromisoformat(turn.finished_at) if turn.finished_at else now
    return span((ended - datetime.fromisoformat(turn.started_at or turn.created_at)).total_seconds())


async def answer(desk: Desk, errand: ErrandRow) -> Reply:
    """Read the first of the candidates that has left a log."""
    what, *words = errand.argument.split()
    repo = Path(desk.settings.path)
    logs = SessionLogs(repo, desk.settings.config.logs.retention_days)
    lines = int(words.pop(0)) if what == "tail" else 0
    session = await asyncio.to_thread(_first, logs, words)
    if session is None:
        named = f"There is no log of a session {code(words[0], 40)}." if len(words) == 1 else NO_LOG
        return Reply((Message(f"{named} `!logs list` names those of today."),))
    try:
        if what == "tail":
            limit = desk.settings.config.output.max_chars_per_message
            return await asyncio.to_thread(_tail, logs, session, lines, Pages(limit, desk.redactor))
        if errand.only_for:
            return Reply((Message(BY_MESSAGE),))
        return await asyncio.to_thread(_parts, logs, session, desk.redactor)
    except OSError as error:
        return Reply((Message(f"The log {code(session)} cannot be read: {error.strerror or error}."),))


def _first(logs: SessionLogs, sessions: list[str]) -> str | None:
    return next((session for session in sessions if logs.size_of(session) is not None), None)


def _tail(logs: SessionLogs, session: str, count: int, pages: Pages) -> Reply:
    """The last lines as a terminal would show them."""
    # A terminal emulator is not for every worker's memory.
    from codebutler_worker.agents.shell.backlog import returning
    from codebutler_worker.agents.shell.screen import Terminal

    terminal = Terminal()
    terminal.feed(returning(logs.read(session, min(MAX_TAIL_BYTES, TAIL_BYTES + 200 * count))))
    now = terminal.take()
    pages.take(Output(settled=(*now.settled, *now.live)[-max(count, 1) :]))
    return Reply(tuple(Message(shown(page, session)) for page in pages.due() if page.lines))


def _parts(logs: SessionLogs, session: str, redactor: Redactor) -> Reply:
    """The log as files; of one that is too large its end."""
    whole = logs.size_of(session) or 0
    # Byte by byte, so that what is no text comes through as it is.
    text = logs.read(session, MAX_SENT_BYTES).decode("latin-1")
    if whole > MAX_SENT_BYTES:
        # Half a key does not look like one.
        text = text[text.find("\n") + 1 :]
    content = without_secrets(text, redactor).encode("latin-1")
    pieces = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)] or [b""]
    told = f"📎 {code(session)}, {size(whole)}"
    if whole > MAX_SENT_BYTES:
        told += f": its last {size(MAX_SENT_BYTES)} only. The whole log is `{SESSIONS}/{session}.log` there."
    if len(pieces) > 1:
        told += f" In {len(pieces)} parts."
    names = (
        [f"{session}.log"] if len(pieces) == 1 else [f"{session}.{n}.log" for n in range(1, len(pieces) + 1)]
    )
    files = tuple(Attachment(name, piece, name) for name, piece in zip(names, pieces, strict=True))
    return Reply((Message(told),), files)


def without_secrets(text: str, redactor: Redactor) -> str:
    """The log without secrets, those among them that a program has coloured in parts. A line with such a one comes
    without its colours."""
    redacted = redactor.redact(text)
    bare = _ESCAPES.sub("", redacted)
    if redactor.redact(bare) == bare:
        return redacted
    return "".join(_line_without(line, redactor) for line in redacted.splitlines(keepends=True))


def _line_without(line: str, redactor: Redactor) -> str:
    bare = _ESCAPES.sub("", line)
    hidden = redactor.redact(bare)
    return line if hidden == bare else hidden
