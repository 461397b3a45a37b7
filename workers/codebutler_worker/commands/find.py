"""``!find`` searches past conversations."""

from __future__ import annotations

import re
from functools import partial

from codebutler.domain.message import said
from codebutler.domain.refs import ConversationRef
from codebutler.protocol.conversations import MAX_FOUND, AskFound, FoundRun, FoundTold
from codebutler.text.markup import message_link, plain
from codebutler.text.wording import one_line
from codebutler_worker.commands.showing import age
from codebutler_worker.commands.table import Invocation
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import Todo
from codebutler_worker.store.rows import DeferredRow, FoundRow, TurnRow
from codebutler_worker.store.search import words_in
from codebutler_worker.store.unit_of_work import UnitOfWork

LISTED = 8
TITLE_CHARS = 80
BEFORE_CHARS, SNIPPET_CHARS = 60, 240
MARKS = re.compile(r"^[ \t]*`{3,}[^`\n]*$|`|\*\*", re.MULTILINE)
"""Marks of code and bold text, which would show as such in an excerpt."""
IN_CHANNEL_ONLY = "`!find` works only in the repository's channel."
NO_WORDS = "Say what to search for: `!find WORDS`."
NOTHING = "No conversation in this channel contains {words}."
MORE = "… and more: add a word to narrow it down."


def run(invocation: Invocation) -> Todo:
    """Deferred: the index has to be brought up to date first."""
    if not invocation.in_own_channel:
        return invocation.reply(IN_CHANNEL_ONLY)
    if not words_in(invocation.argument):
        return invocation.reply(NO_WORDS)
    return invocation.defer(invocation.argument)


async def answer(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """The best matches, each with a link to its thread and the text around the match."""
    await _update_index(runtime)
    matches = await runtime.commit(
        partial(_render_matches, words=command.argument, channel=runtime.settings.channel_id)
    )
    if not matches:
        words = " and ".join(f"“{plain(one_line(word, 40))}”" for word in words_in(command.argument)[:8])
        return CommandReply((said(NOTHING.format(words=words)),))
    more = [MORE] if len(matches) > LISTED else []
    return CommandReply((said("\n".join([*matches[:LISTED], *more])),))


async def find_for_parent(runtime: Runtime, request: AskFound) -> FoundTold:
    """The same for the parent. Raises StoreError."""
    await _update_index(runtime)
    runs = await runtime.commit(
        partial(_matching_runs, words=request.words, channel=runtime.settings.channel_id)
    )
    return FoundTold(request_id=request.request_id, runs=runs)


async def _update_index(runtime: Runtime) -> None:
    redact = runtime.redactor.redact
    await runtime.commit(lambda uow: uow.search.forget_gone())
    while await runtime.commit(lambda uow: uow.search.add_new(redact)):
        pass


def _matching_runs(uow: UnitOfWork, words: str, channel: ConversationRef) -> tuple[FoundRun, ...]:
    pattern = _pattern(words)
    return tuple(_found_run(uow, row, pattern) for row in uow.search.found(words, channel, MAX_FOUND))


def _found_run(uow: UnitOfWork, row: FoundRow, pattern: re.Pattern[str]) -> FoundRun:
    turn, title, text = _match(uow, row, pattern)
    return FoundRun(
        id=turn.id,
        thread=turn.thread,
        agent=turn.agent,
        at=turn.finished_at or turn.created_at,
        title=title or "…",
        text=snippet(text, pattern),
    )


def _match(uow: UnitOfWork, row: FoundRow, pattern: re.Pattern[str]) -> tuple[TurnRow, str, str]:
    """The run, how it began, and the text that has the words."""
    turn = uow.turns.get(row.turn_id)
    assert turn is not None
    # A secret may have become known only after the text was indexed.
    question, answer = uow.redact(row.question), uow.redact(row.answer)
    return turn, one_line(question, TITLE_CHARS), answer if pattern.search(answer) else question


def _render_matches(uow: UnitOfWork, words: str, channel: ConversationRef) -> list[str]:
    """A few lines for each conversation, best first, and one more line if there are more."""
    pattern = _pattern(words)
    return [_render_match(uow, row, pattern) for row in uow.search.found(words, channel, LISTED + 1)]


def _render_match(uow: UnitOfWork, row: FoundRow, pattern: re.Pattern[str]) -> str:
    turn, title, text = _match(uow, row, pattern)
    title = plain(title) or "…"
    where = message_link(turn.channel_id, turn.thread, title) if turn.thread else title
    return f"• {where} · {plain(turn.agent)} · {age(uow, turn)}\n> {snippet(text, pattern)}"


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile("|".join(rf"{re.escape(word)}\w*" for word in words_in(words)), re.IGNORECASE)


def snippet(source: str, pattern: re.Pattern[str]) -> str:
    """The words around the first match on one line, as Markdown with the matches in bold."""
    line = " ".join(MARKS.sub("", source).split())
    first = pattern.search(line)
    start = max(0, first.start() - BEFORE_CHARS) if first else 0
    cut = line[start : start + SNIPPET_CHARS]
    text, done = "", 0
    for match in pattern.finditer(cut):
        text += f"{plain(cut[done : match.start()])}**{plain(match[0])}**"
        done = match.end()
    before, after = "…" if start else "", "…" if start + SNIPPET_CHARS < len(line) else ""
    return f"{before}{text}{plain(cut[done:])}{after}"
