"""The working tree: ``!diff`` shows what has changed, ``!undo`` puts a run's changes back, ``!checks`` runs checks."""

from __future__ import annotations

from pathlib import Path

from codebutler.config.schema import RepoSettings
from codebutler.domain.message import said
from codebutler.domain.model import Command, Prompt, Request
from codebutler.text.markup import plain
from codebutler_worker.commands.showing import age
from codebutler_worker.commands.table import Invocation
from codebutler_worker.conversation.undo import changed_by, undo_key
from codebutler_worker.present.lines import FENCE_CHARS, count, fenced
from codebutler_worker.present.notices import (
    ALREADY_UNDONE,
    NO_SNAPSHOT,
    NOTHING_CHANGED,
    UNDO_BUSY,
    undo_preview,
)
from codebutler_worker.runtime.deferred import Attachment, CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import CHECKS, LIVE, Todo, words_of
from codebutler_worker.store.rows import DeferredRow, TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.checks import checks_command
from codebutler_worker.tree.tree import Difference

MAX_BYTES = 4 * 2**20
STAT_CHARS = 1500
WORDS_CHARS = 60
UNCHANGED = "Nothing has changed since the last commit."
NO_RUN = "No run here has left a snapshot, so there is nothing to compare."
RUN_UNCHANGED = "The last run here has changed no files."
BY_MESSAGE = "Say `!diff` in the channel to get it as a file."
NO_COMMAND = (
    "I found nothing that checks this repository: set `checks.command` in its `.codebutler/config.json`, "
    "then run `codebutler trust` on its machine."
)
NO_CHECKS = Command(name=CHECKS)
"""What a request for the checks becomes where there are none."""


def diff(asked: Invocation) -> Todo:
    """Git has to be asked."""
    if not asked.argument:
        return asked.defer()
    turn = changed_by(asked.newest)
    if turn is None:
        return asked.reply(NO_RUN)
    return asked.defer(f"{turn.tree_before} {turn.tree_after or ''}".strip())


async def answer_diff(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """A summary and, if it is short, the difference itself; otherwise it is attached."""
    before, _, after = command.argument.partition(" ")
    tree = await runtime.agents.tree(await runtime.agents.workdir(command.conversation))
    if before and not after:
        now = await tree.snapshot("now")
        after = now.commit if now else ""
    found = await tree.difference(before or None, after or None, limit_bytes=MAX_BYTES)
    if not found.stat.strip():
        return CommandReply((said(RUN_UNCHANGED if before else UNCHANGED),))
    limit = runtime.settings.config.output.max_chars_per_message
    return _shown(found, limit, whispered=bool(command.only_for))


def _shown(found: Difference, limit: int, *, whispered: bool) -> CommandReply:
    """How a difference is said within ``limit`` characters. A file cannot be for one user alone."""
    *_, summary = found.stat.strip().splitlines()
    stat, _ = fenced(found.stat, STAT_CHARS)
    body, hidden = fenced(found.body, min(limit, FENCE_CHARS) - 200)
    if not hidden and not found.cut:
        return CommandReply((said(f"{summary.strip()}\n{body}"),))
    if whispered:
        return CommandReply((said(f"{stat}\n{BY_MESSAGE}"),))
    cut = f"\n_The file holds the first {count(MAX_BYTES // 2**20, 'MB')} only._" if found.cut else ""
    file = Attachment("changes.diff", found.body.encode("utf-8", "replace"), "Changes")
    return CommandReply((said(f"{stat}{cut}"),), (file,))


def undo(asked: Invocation) -> Todo:
    """Look at what would be put back; git has to be asked."""
    if asked.turns(*LIVE):
        return asked.reply(UNDO_BUSY)
    turn = changed_by(asked.newest)
    if turn is None:
        return asked.reply(NO_SNAPSHOT)
    if asked.uow.messages.get(turn.channel_id, undo_key(turn.id)) is not None:
        return asked.reply(ALREADY_UNDONE)
    return asked.defer(turn.id)


async def answer_undo(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """A card that says what would be put back, with a button that does it."""
    turn, words, when = await runtime.commit(lambda uow: _described(uow, command.argument))
    if turn is None or turn.tree_before is None:
        return CommandReply((said(NO_SNAPSHOT),))
    tree = await runtime.agents.tree(await runtime.agents.workdir(turn.conversation))
    found = await tree.put_back(turn.tree_before, turn.tree_after, "check")
    if not found.undone and not found.left:
        return CommandReply((said(NOTHING_CHANGED.format(words=words, when=when)),))
    return CommandReply((undo_preview(turn.id, f"{words}, {when}", found),))


def _described(uow: UnitOfWork, turn_id: str) -> tuple[TurnRow | None, str, str]:
    turn = uow.turns.get(turn_id)
    if turn is None:
        return None, "", ""
    return turn, f"“{plain(words_of(uow, turn, WORDS_CHARS))}”", age(uow, turn)


def resolved(request: Request, settings: RepoSettings) -> Request:
    """A request for the checks with the command to run; any other as it is."""
    if not isinstance(request, Prompt) or request.prefix != CHECKS:
        return request
    command = checks_command(settings.config.checks.command, Path(settings.path))
    return NO_CHECKS if command is None else Prompt(text=command, prefix=CHECKS)


def checks(asked: Invocation) -> Todo:
    """Only where there is nothing to run: otherwise it is a prompt."""
    return asked.reply(NO_COMMAND)
