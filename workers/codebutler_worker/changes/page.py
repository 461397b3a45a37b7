"""What a run changed, for the page that shows all of it: its files, and the changed lines. The reply fits in one
message to the parent. Files that are binary or have very many changed lines are only named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from codebutler.domain.errors import CodeButlerError
from codebutler.protocol.conversations import (
    MAX_CHANGED_FILES,
    MAX_DIFF_BYTES,
    MAX_PATH_CHARS,
    AskDiff,
    ChangedFile,
    RunChanges,
)
from codebutler.text.redact import redacted_diff
from codebutler_worker.present.lines import one_line
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tree.tree import FileChange, Tree

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
    messages = uow.messages.of_turn(turn_id)
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
