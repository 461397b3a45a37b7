"""What people are asked by agents, as rows: opened once, decided once, and said on the card.

A row names exactly one call by the digest of its tool and input. What was decided about one call says nothing
about another, except within a grant: the same action kind with the same pattern in the same session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from codebutler_worker.agents.backend import Approval, Question
from codebutler_worker.conversation.desk import Draft, Place, iso
from codebutler_worker.conversation.queueing import place_of
from codebutler_worker.conversation.states import move
from codebutler_worker.present.approvals import (
    approval_card,
    approval_text,
    closed_card,
    question_card,
    question_text,
)
from codebutler_worker.present.lines import one_line
from codebutler_worker.store.rows import ApprovalRow, ApprovalState, TurnRow

EXPIRY_S = 1800.0
QUESTION_TOOL = "codebutler.question"
"""Stands for the tool in the row of a question; no agent's tool has this name."""
EXPIRED = "⌛ Nobody decided within 30 minutes: refused."
EXPIRED_REASON = "Nobody decided within 30 minutes."
NOT_RUN = "⚠️ The worker stopped before anybody decided: this was NOT run."
WITHDRAWN = "⚠️ The turn ended before anybody decided: this was NOT run."

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
    draft: Draft, turn_id: str, approval_id: str, asked: Approval | Question, workdir: str
) -> ApprovalRow:
    """Write the row, let the turn wait, and post the card. Raises KeyError if there is no such turn."""
    turn = draft.uow.turns.get(turn_id)
    if turn is None:
        raise KeyError(turn_id)
    tool, given = _action(asked, workdir)
    if isinstance(asked, Approval):
        text = approval_text(tool, asked.input, workdir, turn.user_id)
        card = approval_card(approval_id, text, scope_of(tool, asked.input))
    else:
        card = question_card(approval_id, question_text(asked.text), asked.options)
    action_json = canonical(tool, given)
    row = ApprovalRow(
        id=approval_id,
        turn_id=turn_id,
        conversation=turn.conversation,
        tool=tool,
        action_json=action_json,
        digest=digest_of(action_json),
        requested_at=draft.stamp,
        expires_at=iso(draft.now + timedelta(seconds=EXPIRY_S)),
        message_op_id=draft.post(place_of(turn), card),
    )
    draft.uow.approvals.add(row)
    if turn.state == "running":
        draft.uow.turns.update(turn_id, state=move(turn.state, "ask"))
    return row


def settle(
    draft: Draft, row: ApprovalRow, state: ApprovalState, by: str, verdict: str, reason: str = ""
) -> bool:
    """Decide a pending row and say so on its card; the turn runs on when nothing else is asked.

    False if it was decided before: then nothing changes.
    """
    if not draft.uow.approvals.decide(row.id, state, by, reason):
        return False
    turn = draft.uow.turns.get(row.turn_id)
    place = place_of(turn) if turn else Place(row.conversation, None, row.turn_id)
    if row.message_op_id:
        draft.edit(place, row.message_op_id, closed_card(_text_of(row, turn), verdict))
    if turn and turn.state == "waiting" and not draft.uow.approvals.pending(row.turn_id):
        draft.uow.turns.update(row.turn_id, state=move(turn.state, "answered"))
    return True


def close_all(draft: Draft, turn_id: str, verdict: str) -> None:
    """The turn is over: what it asked is refused, and its cards say so."""
    for row in draft.uow.approvals.pending(turn_id):
        settle(draft, row, "expired", "", verdict)


def is_same(row: ApprovalRow, asked: Approval | Question, workdir: str) -> bool:
    """Whether the row was written for exactly this."""
    action_json = canonical(*_action(asked, workdir))
    return row.action_json == action_json and row.digest == digest_of(action_json)


def given_of(row: ApprovalRow) -> dict[str, Any]:
    """The input of the call that the row is about. Raises msgspec.DecodeError for a damaged row."""
    action = msgspec.json.decode(row.action_json, type=dict[str, Any])
    given = action.get("input")
    return given if isinstance(given, dict) else {}


def options_of(row: ApprovalRow) -> list[str]:
    """The options of a question."""
    options = given_of(row).get("options")
    return [str(option) for option in options] if isinstance(options, list) else []


def _action(asked: Approval | Question, workdir: str) -> tuple[str, dict[str, Any]]:
    if isinstance(asked, Approval):
        return asked.tool, {"input": asked.input, "cwd": workdir}
    return QUESTION_TOOL, {"question": asked.text, "options": list(asked.options)}


def _text_of(row: ApprovalRow, turn: TurnRow | None) -> str:
    given = given_of(row)
    if row.tool == QUESTION_TOOL:
        return question_text(str(given.get("question", "")))
    called = given.get("input")
    called = called if isinstance(called, dict) else {}
    return approval_text(row.tool, called, str(given.get("cwd", "")), turn.user_id if turn else "")
