"""What the dashboard's pages show of a conversation: what was said and decided, from the store alone; and all that one
run changed, its files and the changed lines.

An answer fits in one message to the parent. Files that are binary or have very many changed lines are only named.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from codebutler.domain.errors import CodeButlerError
from codebutler.domain.refs import NOWHERE
from codebutler.protocol.conversations import (
    ANSWER_CHARS,
    LINE_CHARS,
    MAX_ASKED,
    MAX_CHANGED_FILES,
    MAX_DIFF_BYTES,
    MAX_PATH_CHARS,
    MAX_RUNS,
    SAID_CHARS,
    AskDiff,
    AskedTold,
    AskThread,
    ChangedFile,
    RunChanges,
    RunTold,
    SaidTold,
    ThreadTold,
)
from codebutler.text.markup import words
from codebutler.text.redact import redacted_diff
from codebutler.text.wording import one_line
from codebutler_worker.conversation.approvals import asked_in_chat
from codebutler_worker.present.calls import QUESTIONS
from codebutler_worker.present.cards import asked_at_home, asked_in_full
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import ApprovalRow, TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tools.tool import PLAN_TOOL
from codebutler_worker.tree.tree import FileChange, Tree

UNKNOWN_THREAD = "CodeButler no longer knows that conversation."
ALL_CHARS = 400_000
"""The limit for one conversation: it travels as one message."""
VERDICTS = {"pending": "waiting", "allowed": "allowed", "denied": "denied", "expired": "not decided"}
ASKING = "🔐 Permission needed: "
MOST_SAID = 20
MOST_DECIDED = 50
FILE_LINES = 2000
"""Nobody reads more in one file, and browsers slow down."""
ALL_LINES = 8000
TASK_CHARS = 300
SUBJECT_CHARS = 200
COMMITS = 20
UNKNOWN_RUN = "CodeButler has no record of that run."
NO_SNAPSHOT = "That run left no snapshot, so its changes are unknown."


async def transcript(runtime: Runtime, asked: AskThread) -> ThreadTold:
    """The conversation of a run. Raises StoreError."""
    return await runtime.commit(partial(_transcript, asked=asked))


def _transcript(uow: UnitOfWork, asked: AskThread) -> ThreadTold:
    turn = uow.turns.get(asked.turn)
    if turn is None:
        return ThreadTold(request_id=asked.request_id, problem=UNKNOWN_THREAD)
    rows = uow.turns.find(newest=MAX_RUNS + 1, conversation=turn.conversation)
    runs: list[RunTold] = []
    left = ALL_CHARS
    for row in rows[:MAX_RUNS]:
        run = _run(uow, row)
        left -= len(run.answer) + sum(len(said.text) for said in run.said)
        if left < 0 and runs:
            break
        runs.append(run)
    return ThreadTold(
        request_id=asked.request_id,
        thread=turn.thread,
        runs=tuple(reversed(runs)),
        has_more=len(runs) < len(rows),
        asked=tuple(
            AskedTold(asked=asked_in_full(row, card, uow.redact), is_foreign=row.tool == PLAN_TOOL)
            for row, card in asked_in_chat(uow, turn.id, MAX_ASKED)
        ),
    )


def _run(uow: UnitOfWork, turn: TurnRow) -> RunTold:
    answer = uow.redact(turn.result or "")
    messages = uow.messages.find(turn_id=turn.id)[:MOST_SAID]
    return RunTold(
        id=turn.id,
        state=turn.state,
        agent=turn.agent,
        at=turn.finished_at or turn.started_at or turn.created_at,
        said=tuple(
            SaidTold(user=each.from_id, at=each.timestamp, text=uow.redact(each.content)[:SAID_CHARS])
            for each in messages
        ),
        decided=tuple(_decided(uow, row) for row in uow.approvals.find(turn_id=turn.id)[:MOST_DECIDED]),
        answer=answer[:ANSWER_CHARS],
        is_cut=len(answer) > ANSWER_CHARS,
        cost_usd=turn.cost_usd,
        changed=turn.tree_after not in (None, turn.tree_before),
    )


def _decided(uow: UnitOfWork, row: ApprovalRow) -> str:
    """What became of it, and what was asked."""
    verdict = "answered" if row.tool in QUESTIONS and row.state == "allowed" else VERDICTS[row.state]
    by = f" by {row.decided_by}" if row.decided_by else ""
    reason = f" ({row.reason})" if row.reason else ""
    asked = words(asked_at_home(row, NOWHERE).text).removeprefix(ASKING) or row.tool
    return one_line(uow.redact(f"{verdict.capitalize()}{by}{reason}: {asked}"), LINE_CHARS)


async def run_changes(runtime: Runtime, asked: AskDiff) -> RunChanges:
    """What a run changed. Raises StoreError."""
    turn, task = await runtime.commit(lambda uow: (uow.turns.get(asked.turn), _task(uow, asked.turn)))
    if turn is None:
        return _none(asked, UNKNOWN_RUN)
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
