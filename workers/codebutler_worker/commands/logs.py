"""``!logs``: what the programs of sessions wrote, as a file or its last lines; and which sessions there are."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from codebutler.domain.message import said
from codebutler.text.markup import plain
from codebutler_worker.agents.backend import Output
from codebutler_worker.agents.record import SessionLogs, session_of
from codebutler_worker.commands import sending
from codebutler_worker.commands.asked import Asked
from codebutler_worker.commands.describe import words_of
from codebutler_worker.desk.deferred import Reply
from codebutler_worker.desk.desk import Desk
from codebutler_worker.desk.todo import Todo
from codebutler_worker.present.lines import code, one_line, span
from codebutler_worker.present.terminal import Pages, shown
from codebutler_worker.store.rows import DeferredRow, TurnRow

LOOKED_AT = 50
LISTED = 40
LISTED_HOURS = 24
TAIL_LINES = "20"
"""Where nobody says how many."""
TAIL_BYTES = 256 * 2**10
MAX_TAIL_BYTES = 2**20
NO_LOG = "No session here has left a log yet."
NO_OUTPUT = "No session here has written any output yet."
NONE_LISTED = f"No session has run here in the last {LISTED_HOURS} hours."
BY_MESSAGE = "A file cannot be for you alone: say `!logs` in the channel."


def run(asked: Asked) -> Todo:
    """The list is in the store; logs are on disk and have to be read."""
    words = asked.argument.split()
    if words[:1] == ["list"]:
        return asked.reply(_list(asked))
    candidates = [session_of(turn.id) for turn in asked.newest(LOOKED_AT) if turn.started_at is not None]
    if words[:1] == ["tail"]:
        return asked.defer(" ".join(["tail", *(words[1:] or [TAIL_LINES]), *candidates]))
    if len(words) == 2:
        return asked.defer(f"parts {words[1]} {words[0]}")
    return asked.defer(" ".join(["send", *(words or candidates)]))


def _list(asked: Asked) -> str:
    since = (asked.draft.now - timedelta(hours=LISTED_HOURS)).isoformat()
    turns = [
        turn for turn in asked.newest(LISTED + 1) if turn.started_at is not None and turn.created_at >= since
    ]
    if not turns:
        return NONE_LISTED
    rest = f", the newest {LISTED}" if len(turns) > LISTED else ""
    lines = [_line(asked, turn) for turn in turns[:LISTED]]
    return "\n".join([f"Sessions of the last {LISTED_HOURS} hours{rest}:", *lines])


def _line(asked: Asked, turn: TurnRow) -> str:
    words = plain(one_line(words_of(asked.draft, turn, 60)))
    took = _duration(turn, asked.draft.now)
    parts = (code(session_of(turn.id)), turn.state, took, plain(turn.agent), words)
    return f"• {' · '.join(part for part in parts if part)}"


def _duration(turn: TurnRow, now: datetime) -> str:
    ended = datetime.fromisoformat(turn.finished_at) if turn.finished_at else now
    return span((ended - datetime.fromisoformat(turn.started_at or turn.created_at)).total_seconds())


async def answer(desk: Desk, command: DeferredRow) -> Reply:
    """Read the first of the candidates that has left a log; of a long one the next part."""
    what, *words = command.argument.split()
    logs = SessionLogs.of(desk.settings)
    if what == sending.STEP:
        return await sending.go_on(desk, logs, command)
    if what == "tail":
        pages = Pages(desk.settings.config.output.max_chars_per_message, desk.redactor)
        return await asyncio.to_thread(_tail, logs, words[1:], int(words[0]), pages)
    told = words.pop(0) if what == "parts" else ""
    session = await asyncio.to_thread(_first, logs, words)
    if session is None:
        named = f"There is no log of a session {code(words[0], 40)}." if len(words) == 1 else NO_LOG
        return Reply((said(f"{named} `!logs list` names those of today."),))
    try:
        if command.only_for:
            return Reply((said(BY_MESSAGE),))
        return await asyncio.to_thread(sending.begin, logs, session, told, desk.redactor)
    except OSError as error:
        return Reply((said(_unreadable(session, error)),))


def _first(logs: SessionLogs, sessions: list[str]) -> str | None:
    return next((session for session in sessions if logs.size_of(session) is not None), None)


def _tail(logs: SessionLogs, sessions: list[str], count: int, pages: Pages) -> Reply:
    """The last lines that the newest session with any output wrote, as a terminal would show them."""
    # A terminal emulator is not for every worker's memory.
    from codebutler_worker.agents.shell.output import returning
    from codebutler_worker.agents.shell.screen import TerminalScreen

    for session in sessions:
        try:
            written = logs.output(session, min(MAX_TAIL_BYTES, TAIL_BYTES + 200 * count))
        except FileNotFoundError:
            continue
        except OSError as error:
            return Reply((said(_unreadable(session, error)),))
        terminal = TerminalScreen()
        terminal.feed(returning(written))
        now = terminal.take()
        pages.take(Output(settled=(*now.settled, *now.live)[-max(count, 1) :]))
        if messages := tuple(said(shown(page, session)) for page in pages.due() if page.lines):
            return Reply(messages)
    return Reply((said(NO_OUTPUT),))


def _unreadable(session: str, error: OSError) -> str:
    return f"The log {code(session)} cannot be read: {error.strerror or error}."
