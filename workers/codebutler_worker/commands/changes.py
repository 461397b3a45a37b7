"""The working tree: ``!diff`` shows what has changed, ``!undo`` undoes a run's changes, ``!commit`` commits them,
``!checks`` runs checks."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from codebutler.config.schema import RepoSettings
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import said
from codebutler.domain.model import Command, Prompt, Request
from codebutler.text.markup import plain
from codebutler.text.wording import one_line
from codebutler_worker.changes.card import listed, one_file, review_link
from codebutler_worker.changes.checking import answer_checks, checks_of, script_of
from codebutler_worker.changes.evidence import with_trailers
from codebutler_worker.changes.undo import LOOKED_AT, reversal, undo_key
from codebutler_worker.commands.showing import age
from codebutler_worker.commands.table import Invocation
from codebutler_worker.forge.signing import signer_of
from codebutler_worker.present.lines import code
from codebutler_worker.present.notices import (
    ALREADY_UNDONE,
    NO_SNAPSHOT,
    NOTHING_CHANGED,
    UNDO_BUSY,
    undo_preview,
)
from codebutler_worker.runtime.deferred import CommandReply
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import CHECKS, LIVE, Todo
from codebutler_worker.store.rows import DeferredRow, TurnRow, message_id
from codebutler_worker.store.unit_of_work import UnitOfWork

__all__ = ["answer_checks"]

MAX_BYTES = 4 * 2**20
SUBJECT_CHARS = 72
MESSAGE_CHARS = 2000
UNCHANGED = "Nothing has changed since the last commit."
NO_RUN = "No run here has left a snapshot, so there is nothing to compare."
RUN_UNCHANGED = "The last run here changed no files."
NO_COMMAND = (
    "This repository has no checks: set `checks.commands` in its `.codebutler/config.json`, "
    "then run `codebutler trust` on the machine that runs CodeButler."
)
NO_CHECKS = Command(name=CHECKS)
"""The prompt that replaces a request for checks when there are none."""
COMMIT_BUSY = "An agent is running and may be writing: send `!stop` or wait until it ends, then `!commit`."
NOTHING_TO_COMMIT = "Nothing to commit: the run's changes are already in the last commit."
NO_RUN_TO_COMMIT = "There is nothing to commit here: no run has changed a file that git does not ignore."
NOT_RECORDED = (
    "❌ Not committed. The last run's changes were not recorded, probably because CodeButler stopped before the "
    "run ended. `!diff` shows what has changed; commit it on the machine with `git commit`."
)
SNAPSHOT_WAIT_S, SNAPSHOT_POLL_S = 60.0, 0.5
NO_AUTHOR = re.compile(
    r"identity unknown|empty ident|tell me who you are|auto-detect|no (name|email) was given", re.I
)
NO_IDENTITY = (
    'Git has no author configured. On the machine that runs CodeButler, run `git config --global user.name "NAME"` and '
    "`git config --global user.email ADDRESS`, then commit again."
)


def diff(invocation: Invocation) -> Todo:
    """Deferred: git has to be asked."""
    if not invocation.argument:
        return invocation.defer()
    if invocation.argument not in ("run", "turn"):
        return invocation.defer(invocation.argument)
    turn = invocation.changed_run()
    if turn is None or turn.tree_before is None:
        return invocation.reply(NO_RUN)
    return invocation.defer(f"{turn.tree_before} {turn.tree_after or ''}".strip())


async def answer_diff(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """The diff itself if it is short; otherwise the list of files, a page at a time, or one file."""
    before, _, rest = command.argument.partition(" ")
    after, _, view = rest.partition(" ")
    tree = await runtime.agents.tree(await runtime.agents.workdir(command.conversation))
    if before and not after:
        snapshot = await tree.snapshot("now")
        after = snapshot.commit if snapshot else ""
    difference = await tree.difference(before or None, after or None, limit_bytes=MAX_BYTES)
    if not difference.files:
        return CommandReply((said(RUN_UNCHANGED if before else UNCHANGED),))
    limit, is_private = runtime.settings.config.output.max_chars_per_message, bool(command.only_for)
    kind, number = view[:1], view[1:]
    if kind == "f" and number.isdecimal() and int(number) < len(difference.files):
        file = difference.files[int(number)]
        file_difference = await tree.difference(
            difference.before, difference.after, limit_bytes=MAX_BYTES, files=(file,)
        )
        return one_file(file_difference, file, limit, whispered=is_private)
    page = int(number) if kind == "p" and number.isdecimal() else 0
    run = await runtime.commit(partial(_run_between, before=before, after=after)) if before else ""
    link = review_link(runtime.settings.name, run) if run else ""
    return listed(difference, limit, page=page, whole=kind == "a", whispered=is_private, link=link)


def _run_between(uow: UnitOfWork, *, before: str, after: str) -> str:
    """The run with these snapshots, "" if it was long ago."""
    snapshots = (before, after)
    newest = uow.turns.find(newest=LOOKED_AT)
    return next((turn.id for turn in newest if (turn.tree_before, turn.tree_after) == snapshots), "")


def undo(invocation: Invocation) -> Todo:
    """Deferred: see what an undo would restore; git has to be asked."""
    if invocation.turns(*LIVE):
        return invocation.reply(UNDO_BUSY)
    turn = invocation.changed_run()
    if turn is None:
        return invocation.reply(NO_SNAPSHOT)
    if invocation.uow.messages.get(message_id(turn.channel_id, undo_key(turn.id))) is not None:
        return invocation.reply(ALREADY_UNDONE)
    return invocation.defer(turn.id)


async def answer_undo(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """A card that shows what would be undone, with a button that does it."""
    turn, verb, words, when = await runtime.commit(lambda uow: _describe_turn(uow, command.argument))
    if turn is None or turn.tree_before is None:
        return CommandReply((said(NO_SNAPSHOT),))
    tree = await runtime.agents.tree(await runtime.agents.workdir(turn.conversation))
    preview = await tree.put_back(turn.tree_before, turn.tree_after, "check")
    if not preview.undone and not preview.left:
        return CommandReply((said(NOTHING_CHANGED.format(words=words, when=when)),))
    return CommandReply((undo_preview(turn.id, verb, f"{words}, {when}", preview),))


def _describe_turn(uow: UnitOfWork, turn_id: str) -> tuple[TurnRow | None, str, str, str]:
    turn = uow.turns.get(turn_id)
    if turn is None:
        return None, "", "", ""
    verb, words = reversal(uow, turn)
    return turn, verb, f"“{plain(words)}”", age(uow, turn)


def commit(invocation: Invocation) -> Todo:
    """Commit what a run changed. A running agent could be changing it."""
    if invocation.turns(*LIVE):
        return invocation.reply(COMMIT_BUSY)
    turn = invocation.changed_run()
    if turn is None:
        return invocation.reply(NO_RUN_TO_COMMIT)
    return invocation.defer(f"{turn.id} {invocation.argument}".strip())


async def answer_commit(runtime: Runtime, command: DeferredRow) -> CommandReply:
    """The commit's ID, which a second request for it gets too."""
    turn_id, _, subject = command.argument.partition(" ")
    turn = await _wait_for_snapshot(runtime, turn_id)
    if turn is None or turn.tree_before is None or turn.tree_after is None:
        return CommandReply((said(NOT_RECORDED),), ok=False)
    task = await runtime.commit(lambda uow: uow.redact(_prompt_of(uow, turn_id)))
    message = commit_message(runtime.redactor.redact(subject) or task)
    message = with_trailers(message, runtime.settings.config.git.trailers, turn)
    tree = await runtime.agents.tree(await runtime.agents.workdir(turn.conversation))
    try:
        sign = await signer_of(runtime.settings)
        committed = await tree.commit(turn.tree_before, turn.tree_after, f"{turn.id}/commit", message, sign)
    except CodeButlerError as error:
        if not NO_AUTHOR.search(str(error)):
            raise
        return CommandReply((said(f"❌ Not committed. {NO_IDENTITY}"),), ok=False)
    if not committed.commit:
        return CommandReply((said(NOTHING_TO_COMMIT),))
    name = committed.commit[:9]
    where = f"{code(name)}{f' on {code(committed.branch)}' if committed.branch else ' (detached HEAD)'}"
    if committed.again:
        return CommandReply((said(f"That is already committed: {where}."),))
    text = f"✅ Committed {where}: {plain(message.partition(chr(10))[0])}"
    return CommandReply((said(text),), also=lambda uow, _: uow.turns.add_commits(turn_id, [name]))


async def _wait_for_snapshot(runtime: Runtime, turn_id: str) -> TurnRow | None:
    """The run with what it has changed: its answer comes before its program's end and the snapshot after that."""
    until_s = runtime.clock.monotonic() + SNAPSHOT_WAIT_S
    while True:
        turn = await runtime.commit(lambda uow: uow.turns.get(turn_id))
        if turn is None or turn.tree_after is not None or runtime.clock.monotonic() >= until_s:
            return turn
        await runtime.clock.sleep(SNAPSHOT_POLL_S)


def _prompt_of(uow: UnitOfWork, turn_id: str) -> str:
    messages = uow.messages.find(turn_id=turn_id)
    return messages[0].content if messages else ""


def commit_message(task: str) -> str:
    """The prompt as a commit message: one line of at most 72 characters and, if that shortens it, the full text
    below. Pure."""
    lines = [line.strip() for line in task.strip().splitlines() if line.strip()]
    first = lines[0] if lines else "Changes of a run"
    subject = one_line(first, SUBJECT_CHARS)
    if len(lines) < 2 and subject == first:
        return subject
    return f"{subject}\n\n{task.strip()[:MESSAGE_CHARS]}"


def resolve_checks(request: Request, settings: RepoSettings) -> Request:
    """A request for checks with the command to run; any other request unchanged."""
    if not isinstance(request, Prompt) or request.prefix != CHECKS:
        return request
    checks = checks_of(settings.config.checks, Path(settings.path))
    return Prompt(text=script_of(checks), prefix=CHECKS) if checks else NO_CHECKS


def checks(invocation: Invocation) -> Todo:
    """Used only when there is nothing to run: otherwise it becomes a prompt."""
    return invocation.reply(NO_COMMAND)
