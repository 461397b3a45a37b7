"""Our buttons by their ``action_id``, as both processes and the chats know them. They are part of the contract."""

from __future__ import annotations

ALLOW_ACTION = "codebutler.allow"
ALLOW_SESSION_ACTION = "codebutler.allow_session"
DENY_ACTION = "codebutler.deny"
REASON_ACTION = "codebutler.deny_reason"
"""Opens a form for the reason; sent, the form is a press of ``DENY_ACTION`` with words."""
ANSWER_ACTION = "codebutler.answer"
PICK_ACTION = "codebutler.pick"
"""Boxes to tick: nothing is decided before a button beside them is pressed."""
TICKED = "ticked"
"""In the value of a button beside boxes, behind the question's ID: the answer is what is ticked."""
STOP_ACTION = "codebutler.stop"
RETRY_ACTION = "codebutler.retry"
DROP_ACTION = "codebutler.drop"
ASK_AGAIN_ACTION = "codebutler.ask_again"
"""Start a new run with a message that was edited after its run had begun."""
REPO_ACTION = "codebutler.repo"
"""Which repository a direct conversation is about."""
TOGETHER = ","
"""Between the ids in the value of the button that allows several requests."""


def box_value(question_id: str, at: int) -> str:
    """What names one option of a question."""
    return f"{question_id}:{at}"
