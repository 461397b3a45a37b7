"""Pending checks, stored as rows: each starts when nobody is working in its tree.

A run that begins there interrupts them, and they start over when the tree is idle. So a busy checkout has only its
last state checked, once: a run that changes files takes over the pending checks of earlier runs.

What a run changed, for the page that shows all of it: its files, and the changed lines. The reply fits in one
message to the parent. Files that are binary or have very many changed lines are only named.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from codebutler.config.programs import parallel_programs
from codebutler.config.schema import Config
from codebutler.domain.errors import CodeButlerError
from codebutler.domain.message import Message
from codebutler.domain.model import Operation, Post
from codebutler.domain.refs import PersonRef
from codebutler.protocol.conversations import (
    MAX_CHANGED_FILES,
    MAX_DIFF_BYTES,
    MAX_PATH_CHARS,
    AskDiff,
    ChangedFile,
    RunChanges,
)
from codebutler.text.redact import redacted_diff
from codebutler.text.wording import one_line
from codebutler_worker.changes.card import LATER, WAITING, with_verdict
from codebutler_worker.runtime.deferred import LINE, say_line, sent_as
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.runtime.turns import CHECKS, LIVE, own_tree
from codebutler_worker.store.rows import DeferredRow, TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.tree import FileChange, Tree

_KEY = "changes-"
BY_THEMSELVES, ALL = "always", "all"
"""Which checks a row is for: the automatic ones, or also those a person may request."""


def evidence_id(turn_id: str) -> str:
    """The key of a run's card and of the command that runs its checks."""
    return f"{_KEY}{turn_id}"


def card_id(turn_id: str) -> str:
    """The operation that posts a run's card."""
    return sent_as(evidence_id(turn_id), LINE)


def turn_of(evidence: str) -> str:
    """The run that a card or its checks belong to; "" for anything else."""
    return evidence.removeprefix(_KEY) if evidence.startswith(_KEY) else ""


def posted_card(uow: UnitOfWork, turn_id: str) -> Message | None:
    """The run's card as posted."""
    return posted_as(uow, card_id(turn_id))


def posted_as(uow: UnitOfWork, op_id: str) -> Message | None:
    """What this operation posted."""
    row = uow.outbox.get(op_id)
    operation = msgspec.json.decode(row.payload, type=Operation) if row else None
    return operation.message if isinstance(operation, Post) else None


def tell(uow: UnitOfWork, command: DeferredRow, verdict: str, *, offer: bool = True) -> None:
    """Show the state of its checks on the card; ``offer``: show a button to run them (again)."""
    turn_id = turn_of(command.id)
    if (posted := posted_card(uow, turn_id)) is not None:
        say_line(uow, command, with_verdict(posted, verdict, turn_id, offer=offer), value="notice")


def add_checks(uow: UnitOfWork, turn: TurnRow, user: PersonRef, which: str = BY_THEMSELVES) -> None:
    """Have a run's checks run as soon as its tree is idle."""
    uow.deferred.add(
        DeferredRow(
            id=evidence_id(turn.id),
            name=CHECKS,
            argument=which,
            conversation=turn.conversation,
            thread=turn.thread or None,
            user_id=user,
            created_at=uow.stamp,
        )
    )


def due_checks(uow: UnitOfWork, config: Config, working: Collection[str]) -> list[DeferredRow]:
    """Those whose tree is idle; ``working``: conversations in which an agent still runs, whatever the store says."""
    found = _pending(uow)
    if not found:
        return []
    busy = {*working, *_busy(uow, config)}
    # If it was started and is due again, we interrupted it: only a worker that died leaves an attempt that counts.
    return [replace(row, attempts=0) for row in found if not _is_among(config, row.conversation, busy)]


def is_at_rest(uow: UnitOfWork, config: Config, conversation: str) -> bool:
    """Whether nobody is working, or about to work, in the conversation's tree."""
    return not _is_among(config, conversation, _busy(uow, config))


def put_off_checks(uow: UnitOfWork, config: Config, conversation: str) -> tuple[str, ...]:
    """A run begins in a conversation: the checks of its tree wait until it has ended; returns which."""
    put_off = [row for row in _pending(uow) if _is_among(config, row.conversation, {conversation})]
    for row in put_off:
        tell(uow, row, WAITING, offer=False)
        uow.deferred.go_on(row.id, row.argument)
    return tuple(row.id for row in put_off)


def take_over_checks(uow: UnitOfWork, config: Config, turn: TurnRow) -> None:
    """A run has changed files: checks still pending from earlier runs in its tree are about a state that is gone."""
    for row in _pending(uow):
        if row.argument == BY_THEMSELVES and _is_among(config, row.conversation, {turn.conversation}):
            tell(uow, row, LATER)
            uow.deferred.delete(id=row.id)


def withdraw_checks(uow: UnitOfWork, conversation: str | None, verdict: str) -> tuple[str, ...]:
    """Cancel the checks of a conversation (None = of all), and say why on their cards; returns which."""
    withdrawn = [row for row in _pending(uow) if conversation in (None, row.conversation)]
    for row in withdrawn:
        tell(uow, row, verdict)
        uow.deferred.delete(id=row.id)
    return tuple(row.id for row in withdrawn)


def _pending(uow: UnitOfWork) -> list[DeferredRow]:
    return [row for row in uow.deferred.find() if turn_of(row.id)]


def _busy(uow: UnitOfWork, config: Config) -> set[str]:
    apart = parallel_programs(config)
    return {turn.conversation for turn in uow.turns.find(state=("queued", *LIVE)) if turn.agent not in apart}


def _is_among(config: Config, conversation: str, busy: Collection[str]) -> bool:
    """Whether any of them works in the conversation's tree."""
    return own_tree(config, conversation) in {own_tree(config, each) for each in busy}


FILE_LINES = 2000
"""Nobody reads more in one file, and browsers slow down."""
ALL_LINES = 8000
TASK_CHARS = 300
SUBJECT_CHARS = 200
COMMITS = 20
UNKNOWN = "CodeButler has no record of that run."
NO_SNAPSHOT = "That run left no snapshot, so its changes are unknown."


async def run_changes(runtime: Runtime, asked: AskDiff) -> RunChanges:
    """The answer. Raises StoreError."""
    turn, task = await runtime.commit(lambda uow: (uow.turns.get(asked.turn), _task(uow, asked.turn)))
    if turn is None:
        return _none(asked, UNKNOWN)
    if turn.tree_before is None:
        return _none(asked, NO_SNAPSHOT)
    try:
        workdir = await runtime.agents.workdir(turn.conversation)
        return await _changes(runtime, asked, turn, task, workdir)
    except CodeButlerError as error:
        return _none(asked, one_line(runtime.redactor.redact(str(error)), 300))


async def _changes(runtime: Runtime, asked: AskDiff, turn: TurnRow, task: str, workdir: Path) -> RunChanges:
    tree = await runtime.agents.tree(workdir)
    after = turn.tree_after or await _now(tree)
    found = await tree.difference(turn.tree_before, after, limit_bytes=1)
    files = found.files[:MAX_CHANGED_FILES]
    shown = to_show(files)
    lines = (
        await tree.difference(found.before, found.after, limit_bytes=MAX_DIFF_BYTES, files=shown)
        if shown
        else None
    )
    redact = runtime.redactor.redact
    body = redacted_diff(lines.body, redact).encode("utf-8", "replace") if lines else b""
    return RunChanges(
        request_id=asked.request_id,
        thread=turn.thread,
        agent=turn.agent,
        task=task,
        at=turn.finished_at or turn.started_at or turn.created_at,
        files=tuple(
            ChangedFile(
                path=_name(redact(file.path)),
                old=_name(redact(file.old)),
                added=file.added,
                removed=file.removed,
                is_shown=file in shown,
            )
            for file in files
        ),
        more=len(found.files) - len(files),
        commits=tuple(one_line(redact(line), SUBJECT_CHARS) for line in found.commits[:COMMITS]),
        body=body[:MAX_DIFF_BYTES],
        is_cut=len(body) > MAX_DIFF_BYTES or (lines is not None and lines.cut),
    )


def _task(uow: UnitOfWork, turn_id: str) -> str:
    messages = uow.messages.find(turn_id=turn_id)
    return one_line(uow.redact(messages[0].content), TASK_CHARS) if messages else ""


async def _now(tree: Tree) -> str | None:
    kept = await tree.snapshot("now")
    return kept.commit if kept else None


def to_show(files: Sequence[FileChange]) -> tuple[FileChange, ...]:
    """The files whose lines are included: the first ones that are neither binary nor too long. Pure."""
    shown, left = [], ALL_LINES
    for file in files:
        size = (file.added or 0) + (file.removed or 0)
        if file.added is not None and size <= min(FILE_LINES, left):
            shown.append(file)
            left -= size
    return tuple(shown)


def _name(path: str) -> str:
    """A path made readable: file names may contain anything."""
    shown = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in path)
    return shown if len(shown) <= MAX_PATH_CHARS else f"…{shown[1 - MAX_PATH_CHARS :]}"


def _none(asked: AskDiff, problem: str) -> RunChanges:
    return RunChanges(request_id=asked.request_id, problem=problem)
