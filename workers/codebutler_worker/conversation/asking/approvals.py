"""What people are asked by agents, as rows: opened once, decided once, and said on the card.

A row names exactly one call by the digest of its tool and input. What was decided about one call says nothing
about another, except within a grant: the same action kind with the same pattern in the same session. Calls that
are asked for shortly after one another share a card; each keeps its own row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from codebutler.config.schema import RepoSettings
from codebutler.domain.model import Upload
from codebutler_worker.agents.backend import Approval, Question
from codebutler_worker.conversation.asking.calls import (
    POLL_TOOL,
    QUESTION_TOOL,
    action_of,
    called_with,
    canonical,
    digest_of,
    given_of,
    pattern_of,
)
from codebutler_worker.conversation.asking.cards import card_of, chars_of, too_long
from codebutler_worker.conversation.asking.quorum import approvals_needed
from codebutler_worker.conversation.marks import show_waiting
from codebutler_worker.desk.draft import Draft, Place, iso, place_of
from codebutler_worker.desk.states import move
from codebutler_worker.store.rows import ApprovalRow, ApprovalState, TurnRow
from codebutler_worker.store.unit_of_work import UnitOfWork
from codebutler_worker.tools.outcome import PLAN_TOOL

TOGETHER_S = 2.0
MOST_TOGETHER = 5
LOOKED_AT = 20
CARD_CHARS = 6_000
"""Of the calls that share a card; chats bound what a message may hold."""
NOT_RUN = "⚠️ The worker stopped before anybody decided: this was NOT run."
WITHDRAWN = "⚠️ The run ended before anybody decided: this was NOT run."
NO_LONGER_ASKED = "⚠️ The agent took this back before anybody decided: it was NOT run."


def open_card(
    draft: Draft, turn_id: str, approval_id: str, asked: Approval | Question, settings: RepoSettings
) -> ApprovalRow:
    """Write the row, let the turn wait, and ask on a card. Raises KeyError if there is no such turn."""
    turn = _turn(draft, turn_id)
    row = _row(draft, turn, approval_id, asked, settings)
    shared = _shared_card(draft, row)
    op_id = _ask(draft, turn, [row]) if shared is None else shared
    row = replace(row, message_op_id=op_id)
    draft.uow.approvals.add(row)
    if shared is not None:
        show(draft, row)
    _attach(draft, place_of(turn), row)
    _wait(draft, turn)
    return row


def open_questions(
    draft: Draft, turn_id: str, asked: Mapping[str, Question], settings: RepoSettings
) -> list[ApprovalRow]:
    """The same for the questions of one call, by the ID of their row: they share a card, in their order."""
    turn = _turn(draft, turn_id)
    rows = [_row(draft, turn, row_id, question, settings) for row_id, question in asked.items()]
    op_id = _ask(draft, turn, rows)
    rows = [replace(row, message_op_id=op_id) for row in rows]
    for row in rows:
        draft.uow.approvals.add(row)
    _wait(draft, turn)
    return rows


def settle(
    draft: Draft,
    row: ApprovalRow,
    state: ApprovalState,
    by: str = "",
    reason: str = "",
    *,
    ticked: Collection[str] = (),
) -> bool:
    """Decide a pending row and say so on its card; the turn runs on when nothing else is asked.

    ``reason`` is what the decider said, the answer to a question, or why nobody decided. ``ticked`` boxes of other
    questions stay so. False if it was decided before: then nothing changes.
    """
    if not draft.uow.approvals.decide(row.id, state, by, reason):
        return False
    show(draft, row, ticked)
    turn = draft.uow.turns.get(row.turn_id)
    if turn and turn.state == "waiting" and not waited_for(draft.uow, row.turn_id):
        draft.uow.turns.update(row.turn_id, state=move(turn.state, "answered"))
        show_waiting(draft, turn, over=True)
    return True


def show(draft: Draft, row: ApprovalRow, ticked: Collection[str] = ()) -> None:
    """Bring the row's card up to date, its boxes as they are ``ticked``."""
    if not row.message_op_id:
        return
    turn = draft.uow.turns.get(row.turn_id)
    place = place_of(turn) if turn else Place(row.conversation, None, row.turn_id)
    rows = draft.uow.approvals.of_card(row.message_op_id)
    draft.edit(place, row.message_op_id, card_of(rows, draft.redact, ticked), value="notice")


def close_all(draft: Draft, turn_id: str, verdict: str) -> None:
    """The turn is over: what it asked is refused, and its cards say so."""
    for row in waited_for(draft.uow, turn_id):
        settle(draft, row, "expired", reason=verdict)


def waited_for(uow: UnitOfWork, turn_id: str) -> list[ApprovalRow]:
    """What the turn's agent waits for, oldest first."""
    return [row for row in uow.approvals.pending(turn_id) if row.tool != POLL_TOOL]


def _attach(draft: Draft, place: Place, row: ApprovalRow) -> None:
    """What its card does not hold, as a file."""
    name, whole = too_long(row, draft.redact)
    if name:
        content = whole.encode("utf-8", "replace")
        title = "The whole plan" if row.tool == PLAN_TOOL else "The whole request"
        draft.add(place, Upload(filename=name, title=title, content=content, thread_ts=place.thread_ts))


def answers_before(draft: Draft, turn: TurnRow) -> tuple[tuple[str, str], ...]:
    """What people had answered (question, answer) in the run that this turn goes on with: it may have ended before
    its agent heard all of it."""
    earlier = draft.uow.turns.newest(LOOKED_AT, turn.conversation)
    last = next((each for each in earlier if each.id != turn.id and each.started_at), None)
    if last is None or last.agent != turn.agent:
        return ()
    rows = [row for row in draft.uow.approvals.of_turn(last.id) if row.tool == QUESTION_TOOL]
    return tuple(
        (str(given_of(row).get("question", "")), row.reason or "") for row in rows if row.state == "allowed"
    )


def is_granted(draft: Draft, turn: TurnRow, session_id: str, asked: Approval, settings: RepoSettings) -> bool:
    """Whether people allowed it for this session, however long ago: then nobody is asked again. What one person
    granted is not enough where more are needed now."""
    if _needed(draft, turn, asked, settings) > 1:
        return False
    wanted = pattern_of(asked.tool, asked.input)
    granted = draft.uow.approvals.granted(turn.conversation, turn.agent, session_id)
    return any(row.tool == asked.tool and pattern_of(row.tool, called_with(row)) == wanted for row in granted)


def _turn(draft: Draft, turn_id: str) -> TurnRow:
    turn = draft.uow.turns.get(turn_id)
    if turn is None:
        raise KeyError(turn_id)
    return turn


def _row(
    draft: Draft, turn: TurnRow, row_id: str, asked: Approval | Question, settings: RepoSettings
) -> ApprovalRow:
    minutes = settings.config.approvals.expiry_minutes
    tool, given = action_of(asked, settings.path)
    action_json = canonical(tool, given)
    return ApprovalRow(
        id=row_id,
        turn_id=turn.id,
        conversation=turn.conversation,
        tool=tool,
        action_json=action_json,
        digest=digest_of(action_json),
        requested_at=draft.stamp,
        expires_at=iso(draft.now + timedelta(minutes=minutes)) if minutes else "",
        needed=_needed(draft, turn, asked, settings),
    )


def _ask(draft: Draft, turn: TurnRow, rows: Sequence[ApprovalRow]) -> str:
    """Whoever asked the agent is called: they are waited for."""
    return draft.post(place_of(turn), card_of(rows, draft.redact), mention=turn.user_id)


def _wait(draft: Draft, turn: TurnRow) -> None:
    if turn.state == "running":
        draft.uow.turns.update(turn.id, state=move(turn.state, "ask"))
        show_waiting(draft, turn)


def requesters_of(draft: Draft, turn: TurnRow) -> frozenset[str]:
    """Everybody who asked for what the turn does."""
    said = draft.uow.messages.of_turn(turn.id)
    return frozenset({turn.user_id, *(message.from_id for message in said)})


def _needed(draft: Draft, turn: TurnRow, asked: Approval | Question, settings: RepoSettings) -> int:
    if isinstance(asked, Question) or asked.tool == PLAN_TOOL:
        return 1
    section = settings.config.approvals
    return approvals_needed(section, requesters_of(draft, turn), asked.tool, asked.input)


def _shared_card(draft: Draft, row: ApprovalRow) -> str | None:
    """The card that this request joins, if one was opened just now."""
    pending = [each for each in waited_for(draft.uow, row.turn_id) if _may_share(each.tool)]
    if not pending or not _may_share(row.tool) or pending[-1].message_op_id is None:
        return None
    rows = draft.uow.approvals.of_card(pending[-1].message_op_id)
    age_s = (draft.now - datetime.fromisoformat(rows[0].requested_at)).total_seconds()
    fits = len(rows) < MOST_TOGETHER and sum(map(chars_of, [*rows, row])) <= CARD_CHARS
    return pending[-1].message_op_id if age_s <= TOGETHER_S and fits else None


def _may_share(tool: str) -> bool:
    return tool not in (QUESTION_TOOL, PLAN_TOOL)
