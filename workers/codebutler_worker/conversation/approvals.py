"""What people are asked by agents, as rows: opened once, decided once, and said on the card.

A row names exactly one call by the digest of its tool and input. What was decided about one call says nothing
about another, except within a grant: the same action kind with the same pattern in the same session. Calls that
are asked for shortly after one another share a card; each keeps its own row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from codebutler.config.schema import RepoSettings
from codebutler.model import Upload
from codebutler_worker.agents.backend import Approval, Question
from codebutler_worker.conversation.desk import Draft, Place, iso
from codebutler_worker.conversation.queueing import place_of
from codebutler_worker.conversation.quorum import needed_for
from codebutler_worker.conversation.states import move
from codebutler_worker.present.approvals import (
    PLAN_TOOL,
    Item,
    allowed_by,
    answered_by,
    approval_card,
    approval_text,
    closed_question,
    denied_by,
    is_cut,
    plan_texts,
    question_card,
    question_text,
)
from codebutler_worker.present.lines import one_line
from codebutler_worker.present.progress import Message
from codebutler_worker.store.rows import ApprovalRow, ApprovalState, TurnRow

EXPIRY_S = 1800.0
TOGETHER_S = 2.0
MOST_TOGETHER = 5
CARD_CHARS = 6_000
"""Of the calls that share a card, as they are stored; Slack bounds a message's blocks."""
QUESTION_TOOL = "codebutler.question"
"""Stands for the tool in the row of a question; no agent's tool has this name."""
POLL_TOOL = "codebutler.poll"
"""The same for a question whose answer the agent does not wait for."""
EXPIRED = "⌛ Nobody decided within 30 minutes: refused."
EXPIRED_REASON = "Nobody decided within 30 minutes."
NOT_RUN = "⚠️ The worker stopped before anybody decided: this was NOT run."
WITHDRAWN = "⚠️ The turn ended before anybody decided: this was NOT run."
NO_LONGER_ASKED = "⚠️ The agent took this back before anybody decided: it was NOT run."

_PATHS: Mapping[str, str] = {"Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path"}
_REMARKS = ("description", "timeout")


def canonical(tool: str, given: Mapping[str, Any]) -> str:
    """One spelling for one call: JSON with sorted keys."""
    return msgspec.json.encode({"tool": tool, "input": given}, order="deterministic").decode()


def digest_of(action_json: str) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(action_json.encode()).hexdigest()


def pattern_of(tool: str, given: Mapping[str, Any]) -> str:
    """What "for this session" covers: a file by its exact path, any other call by its exact input.

    Of a shell command only the remark for people and the time limit may differ.
    """
    path = given.get(_PATHS.get(tool, ""))
    if isinstance(path, str):
        return canonical(tool, {"path": path})
    if tool == "Bash":
        given = {key: value for key, value in given.items() if key not in _REMARKS}
    return canonical(tool, given)


def scope_of(tool: str, given: Mapping[str, Any]) -> str:
    """The same for people."""
    path = given.get(_PATHS.get(tool, ""))
    if isinstance(path, str):
        return f"every {tool} of {one_line(path)}"
    return "exactly this command" if tool == "Bash" else f"{tool} with exactly this input"


def open_card(
    draft: Draft, turn_id: str, approval_id: str, asked: Approval | Question, settings: RepoSettings
) -> ApprovalRow:
    """Write the row, let the turn wait, and ask on a card. Raises KeyError if there is no such turn."""
    turn = draft.uow.turns.get(turn_id)
    if turn is None:
        raise KeyError(turn_id)
    tool, given = _action(asked, settings.path)
    action_json = canonical(tool, given)
    shared = _shared_card(draft, turn_id, tool, len(action_json))
    row = ApprovalRow(
        id=approval_id,
        turn_id=turn_id,
        conversation=turn.conversation,
        tool=tool,
        action_json=action_json,
        digest=digest_of(action_json),
        requested_at=draft.stamp,
        expires_at=iso(draft.now + timedelta(seconds=EXPIRY_S)),
        message_op_id=shared,
        needed=_needed(asked, settings),
    )
    if shared is None:
        row = replace(row, message_op_id=draft.post(place_of(turn), card_of([row])))
    draft.uow.approvals.add(row)
    if shared is not None:
        show(draft, row)
    if tool == PLAN_TOOL:
        _attach(draft, place_of(turn), str(called_with(row).get("plan", "")))
    if turn.state == "running":
        draft.uow.turns.update(turn_id, state=move(turn.state, "ask"))
    return row


def settle(
    draft: Draft,
    row: ApprovalRow,
    state: ApprovalState,
    by: str = "",
    reason: str = "",
    *,
    for_session: bool = False,
) -> bool:
    """Decide a pending row and say so on its card; the turn runs on when nothing else is asked.

    ``reason`` is what the decider said, the answer to a question, or why nobody decided. False if it was decided
    before: then nothing changes.
    """
    if not draft.uow.approvals.decide(row.id, state, by, reason):
        return False
    if for_session:
        draft.uow.approvals.grant(row.id)
    show(draft, row)
    turn = draft.uow.turns.get(row.turn_id)
    if turn and turn.state == "waiting" and not waited_for(draft, row.turn_id):
        draft.uow.turns.update(row.turn_id, state=move(turn.state, "answered"))
    return True


def show(draft: Draft, row: ApprovalRow) -> None:
    """Bring the row's card up to date."""
    if not row.message_op_id:
        return
    turn = draft.uow.turns.get(row.turn_id)
    place = place_of(turn) if turn else Place(row.conversation, None, row.turn_id)
    rows = draft.uow.approvals.of_card(row.message_op_id)
    draft.edit(place, row.message_op_id, card_of(rows))


def close_all(draft: Draft, turn_id: str, verdict: str) -> None:
    """The turn is over: what it asked is refused, and its cards say so."""
    for row in waited_for(draft, turn_id):
        settle(draft, row, "expired", reason=verdict)


def waited_for(draft: Draft, turn_id: str) -> list[ApprovalRow]:
    """What the turn's agent waits for, oldest first."""
    return [row for row in draft.uow.approvals.pending(turn_id) if row.tool != POLL_TOOL]


def is_same(row: ApprovalRow, asked: Approval | Question, workdir: str) -> bool:
    """Whether the row was written for exactly this."""
    action_json = canonical(*_action(asked, workdir))
    return row.action_json == action_json and row.digest == digest_of(action_json)


def _attach(draft: Draft, place: Place, plan: str) -> None:
    """A plan that its card does not hold, as a file."""
    if is_cut(plan):
        content = plan.encode("utf-8", "replace")
        draft.add(
            place,
            Upload(filename="plan.md", title="The whole plan", content=content, thread_ts=place.thread_ts),
        )


def is_granted(draft: Draft, turn: TurnRow, session_id: str, asked: Approval) -> bool:
    """Whether people allowed it for this session, however long ago: then nobody is asked again."""
    wanted = pattern_of(asked.tool, asked.input)
    granted = draft.uow.approvals.granted(turn.conversation, turn.agent, session_id)
    return any(row.tool == asked.tool and pattern_of(row.tool, called_with(row)) == wanted for row in granted)


def given_of(row: ApprovalRow) -> dict[str, Any]:
    """What the row keeps of the question or call. Raises msgspec.DecodeError for a damaged row."""
    action = msgspec.json.decode(row.action_json, type=dict[str, Any])
    given = action.get("input")
    return given if isinstance(given, dict) else {}


def called_with(row: ApprovalRow) -> dict[str, Any]:
    """The input of the call that the row is about."""
    called = given_of(row).get("input")
    return called if isinstance(called, dict) else {}


def options_of(row: ApprovalRow) -> list[str]:
    """The options of a question."""
    options = given_of(row).get("options")
    return [str(option) for option in options] if isinstance(options, list) else []


def voters(row: ApprovalRow) -> dict[str, str]:
    """Who has decided so far: names by user ID."""
    lines = [line.partition(" ") for line in row.votes.splitlines()]
    return {user: name or user for user, _, name in lines}


def with_vote(row: ApprovalRow, user: str, name: str) -> str:
    """The votes with one more in them."""
    votes = voters(row) | {user: one_line(name, 80) or user}
    return "\n".join(f"{user} {name}" for user, name in votes.items())


def _needed(asked: Approval | Question, settings: RepoSettings) -> int:
    if isinstance(asked, Question) or asked.tool == PLAN_TOOL:
        return 1
    return needed_for(settings.config.approvals.quorum, asked.tool, asked.input)


def _shared_card(draft: Draft, turn_id: str, tool: str, size: int) -> str | None:
    """The card that this request joins, if one was opened just now."""
    pending = [row for row in waited_for(draft, turn_id) if _may_share(row.tool)]
    if not pending or not _may_share(tool) or pending[-1].message_op_id is None:
        return None
    rows = draft.uow.approvals.of_card(pending[-1].message_op_id)
    age_s = (draft.now - datetime.fromisoformat(rows[0].requested_at)).total_seconds()
    fits = len(rows) < MOST_TOGETHER and size + sum(len(row.action_json) for row in rows) <= CARD_CHARS
    return pending[-1].message_op_id if age_s <= TOGETHER_S and fits else None


def _may_share(tool: str) -> bool:
    return tool not in (QUESTION_TOOL, PLAN_TOOL)


def _action(asked: Approval | Question, workdir: str) -> tuple[str, dict[str, Any]]:
    if isinstance(asked, Approval):
        return asked.tool, {"input": asked.input, "cwd": workdir}
    return QUESTION_TOOL, {"question": asked.text, "options": list(asked.options)}


def card_of(rows: list[ApprovalRow]) -> Message:
    """The card that asks these, as it stands."""
    if rows[0].tool in (QUESTION_TOOL, POLL_TOOL):
        text = question_text(str(given_of(rows[0]).get("question", "")))
        if rows[0].state == "pending":
            return question_card(rows[0].id, text, options_of(rows[0]))
        return closed_question(text, _verdict(rows[0]))
    return approval_card([_item(row) for row in rows])


def _item(row: ApprovalRow) -> Item:
    called, is_plan = called_with(row), row.tool == PLAN_TOOL
    if is_plan:
        texts = plan_texts(str(called.get("plan", "")))
    else:
        texts = (approval_text(row.tool, called, str(given_of(row).get("cwd", ""))),)
    return Item(
        id=row.id,
        texts=texts,
        scope="" if is_plan or row.needed > 1 else scope_of(row.tool, called),
        needed=row.needed,
        votes=tuple(voters(row).values()),
        verdict=_verdict(row),
        is_plan=is_plan,
    )


def _verdict(row: ApprovalRow) -> str:
    """What became of the request, "" while it is open."""
    names = voters(row)
    by = names.get(row.decided_by or "", row.decided_by or "")
    match row.state:
        case "pending":
            return ""
        case "expired":
            return row.reason or WITHDRAWN
        case "denied":
            return denied_by(by, row.reason or "")
        case "allowed" if row.tool in (QUESTION_TOOL, POLL_TOOL):
            return answered_by(by, row.reason or "")
        case "allowed":
            scope = scope_of(row.tool, called_with(row)) if row.for_session else ""
            return allowed_by(" and ".join(names.values()) if row.needed > 1 else by, scope)
