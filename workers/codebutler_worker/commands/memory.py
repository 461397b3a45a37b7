"""``!memory``: what agents are told about this repository besides the prompt, and how to forget it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from codebutler.config.memory import FactChange, MemoryFile, facts_of
from codebutler.domain.errors import CodeButlerError
from codebutler.text.markup import message_link, plain
from codebutler_worker.commands.asked import Asked
from codebutler_worker.desk.draft import Draft
from codebutler_worker.desk.todo import Todo
from codebutler_worker.memory import keeping
from codebutler_worker.present.lines import code, span
from codebutler_worker.present.memory import NOTHING, NOTHING_TO_UNDO, Remembered, listed
from codebutler_worker.store.rows import REPO_SCOPE, FactRow

LOOKED_AT = 50
answer = keeping.answer


def run(asked: Asked) -> Todo:
    """Show it all, forget one, or take the last change back."""
    word, _, rest = asked.argument.lower().partition(" ")
    try:
        text = MemoryFile(Path(asked.settings.path)).read()
    except CodeButlerError as error:
        return asked.reply(f"❌ {plain(str(error))}")
    match word:
        case "forget":
            return _forget(asked, text, int(rest))
        case "undo":
            return _undo(asked)
        case _:
            return _show(asked, text)


def _show(asked: Asked, text: str) -> Todo:
    facts, kept, draft = facts_of(text), _kept(asked), asked.draft
    lines = draft.uow.memories.lines()
    entries = [
        Remembered(fact, _origin(draft, row.channel_id, row.thread_ts, row.added_at) if row else "")
        for fact, row in ((fact, lines.get(fact)) for fact in facts)
    ]
    entries += [
        Remembered(f"{row.key}: {row.value}", _origin(draft, row.channel_id, row.thread_ts, row.updated_at))
        for row in kept
    ]
    others = sum(bool(line.strip()) for line in text.splitlines()) - len(facts)
    if not entries and not others:
        return asked.reply(NOTHING)
    return asked.reply(listed(entries, others))


def _forget(asked: Asked, text: str, number: int) -> Todo:
    facts, kept = facts_of(text), _kept(asked)
    if not 1 <= number <= len(facts) + len(kept):
        return asked.reply(f"There is no {number}: `!memory` shows what there is.")
    if number > len(facts):
        gone = kept[number - len(facts) - 1]
        asked.draft.uow.facts.forget(gone.scope, gone.key)
        return asked.reply(f"🧠 Forgotten: {code(f'{gone.key}: {gone.value}')}")
    return _want(asked, (FactChange(facts[number - 1]),))


def _undo(asked: Asked) -> Todo:
    """The newest change that was made or is about to be; undoing is a change itself, so it can be undone."""
    newest = asked.draft.uow.memories.newest(LOOKED_AT)
    row = next((row for row in newest if row.state in ("made", "wanted") and keeping.changes_of(row)), None)
    if row is None:
        return asked.reply(NOTHING_TO_UNDO)
    return _want(asked, tuple(change.undone for change in reversed(keeping.changes_of(row))))


def _want(asked: Asked, changes: tuple[FactChange, ...]) -> Todo:
    command = keeping.want(asked.draft, asked.place, asked.settings.channel_id, asked.user, changes)
    return Todo(deferred=(command,))


def _kept(asked: Asked) -> list[FactRow]:
    """What is told where this person asks. Their own facts are shown to nobody else."""
    own = asked.draft.uow.facts.of(asked.user) if asked.user and asked.place.only_for else []
    return [*asked.draft.uow.facts.of(REPO_SCOPE), *own]


def _origin(draft: Draft, channel_id: str, thread_ts: str, at: str) -> str:
    """How old it is, with a link to the thread it comes from."""
    seconds = (draft.now - datetime.fromisoformat(at)).total_seconds()
    age = f"{span(seconds) if seconds < 86_400 else f'{int(seconds // 86_400)}d'} ago"
    return message_link(channel_id, thread_ts, age) if thread_ts else age
