"""What was said in a conversation, from the store: people's messages, decisions, answers. No chat is asked."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from codebutler.domain.refs import NOWHERE
from codebutler.protocol.conversations import (
    ANSWER_CHARS,
    LINE_CHARS,
    MAX_ASKED,
    MAX_RUNS,
    SAID_CHARS,
    AskedTold,
    AskThread,
    RunTold,
    SaidTold,
    ThreadTold,
)
from codebutler.text.markup import words
from codebutler_worker.present.calls import QUESTIONS
from codebutler_worker.present.cards import asked_at_home, asked_in_full
from codebutler_worker.present.lines import one_line
from codebutler_worker.runtime.runtime import Runtime
from codebutler_worker.store.rows import ApprovalRow, TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tools.outcome import PLAN_TOOL

UNKNOWN = "CodeButler no longer knows that conversation."
ALL_CHARS = 400_000
"""The limit for one conversation: it travels as one message."""
VERDICTS = {"pending": "waiting", "allowed": "allowed", "denied": "denied", "expired": "not decided"}
ASKING = "🔐 Permission needed: "
MOST_SAID = 20
MOST_DECIDED = 50


async def transcript(runtime: Runtime, asked: AskThread) -> ThreadTold:
    """The answer. Raises StoreError."""
    return await runtime.commit(partial(_transcript, asked=asked))


def _transcript(uow: UnitOfWork, asked: AskThread) -> ThreadTold:
    turn = uow.turns.get(asked.turn)
    if turn is None:
        return ThreadTold(request_id=asked.request_id, problem=UNKNOWN)
    rows = uow.turns.newest(MAX_RUNS + 1, conversation=turn.conversation)
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
        asked=tuple(_asked(uow, turn)),
    )


def _asked(uow: UnitOfWork, turn: TurnRow) -> Iterator[AskedTold]:
    """The run's open requests whose cards are in the chat."""
    for row in uow.approvals.find(state="pending", turn_id=turn.id)[:MAX_ASKED]:
        card = uow.outbox.get(row.message_op_id)
        if card is not None and card.ref:
            yield AskedTold(asked=asked_in_full(row, card.ref, uow.redact), is_foreign=row.tool == PLAN_TOOL)


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
