"""Messages by meaning: text, buttons, choices and cards. Each chat decides how they look.

Text is Markdown (see ``codebutler.text.markup``). Of our own modules, it imports only ``refs``. Both processes and the
chats know buttons by their ``action_id``: these are part of the contract.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from codebutler.domain.refs import PersonRef

Style = Literal["", "primary", "danger"]
ALLOW_ACTION = "codebutler.allow"
ALLOW_SESSION_ACTION = "codebutler.allow_session"
DENY_ACTION = "codebutler.deny"
REASON_ACTION = "codebutler.deny_reason"
"""Opens a form for the reason; the sent form is a press of ``DENY_ACTION`` with words."""
ANSWER_ACTION = "codebutler.answer"
PICK_ACTION = "codebutler.pick"
"""Boxes to tick: nothing is decided before a button beside them is pressed."""
TICKED = "ticked"
"""In the value of a button beside boxes, after the question's ID: the ticked boxes are the answer."""
STOP_ACTION = "codebutler.stop"
RETRY_ACTION = "codebutler.retry"
DROP_ACTION = "codebutler.drop"
WAIT_ACTION = "codebutler.wait"
ASK_AGAIN_ACTION = "codebutler.ask_again"
"""Start a new run with a message that was edited after its run had started."""
DIFF_ACTION = "codebutler.diff"
DIFF_FILE_ACTION = "codebutler.diff_file"
ASK_UNDO_ACTION = "codebutler.ask_undo"
COMMIT_ACTION = "codebutler.commit"
PUSH_ACTION = "codebutler.push"
PR_ACTION = "codebutler.pr"
CHECKS_ACTION = "codebutler.checks"
"""Each is a command about the button's run, from the person who presses it."""
FIX_ACTION = "codebutler.fix"
"""Ask the agent to fix what the checks found."""
HAND_OVER_ACTION = "codebutler.hand_over"
"""Ask the agent to work on what a pull request's checks or reviewers said."""
DISCARD_ACTION = "codebutler.discard"
"""Discard a thread's worktree, if it is unchanged since that was asked."""
PICK_RACE_ACTION = "codebutler.pick_race"
"""Merge what one agent of a race did, and discard the rest."""
DISCARD_RACE_ACTION = "codebutler.discard_race"
REPO_ACTION = "codebutler.repo"
"""Which repository a direct conversation is about."""
TOGETHER = ","
"""Between the IDs in the value of the button that allows several requests."""


class Button(Struct, frozen=True, omit_defaults=True):
    """A button: ``action`` is one of those in this file, ``value`` says what it is about."""

    label: str
    action: str
    value: str
    style: Style = ""


class Option(Struct, frozen=True, omit_defaults=True):
    """One answer to a question, with its explanation ("" = none)."""

    label: str
    detail: str = ""


class PermissionRequest(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One request for permission: ``texts`` describe it, each a part that must be shown whole.

    ``scope`` is what "for this session" would cover, "" if it is not offered. ``votes`` (Markdown) of the
    ``needed`` people have allowed it; ``verdict`` is its outcome, "" while it is open. A plan is the agent's
    own Markdown.
    """

    id: str
    texts: tuple[str, ...]
    scope: str = ""
    needed: int = 1
    votes: tuple[str, ...] = ()
    verdict: str = ""
    is_plan: bool = False


class Question(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One question. ``text`` is plain, not Markdown. ``several``: more than one option may be chosen.
    ``verdict`` (Markdown) is its outcome, "" while it is open."""

    id: str
    text: str
    options: tuple[Option, ...] = ()
    several: bool = False
    verdict: str = ""


class ApprovalCard(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="approval"):
    """Asks whether calls may run; each is decided separately, or all open ones together."""

    requests: tuple[PermissionRequest, ...]


class QuestionCard(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="question"):
    """Asks people questions; ``ticked`` are the values of the boxes that somebody has ticked."""

    questions: tuple[Question, ...]
    ticked: tuple[str, ...] = ()


class Message(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """``markdown`` above ``buttons``, or a ``card``.

    ``is_foreign``: all of it is an agent's own Markdown. ``names``: users whom it may mention. ``summary``:
    it is a quiet note; a notification shows this instead. ``is_short``: sent as short text only, because the
    chat refused more.
    """

    markdown: str = ""
    buttons: tuple[Button, ...] = ()
    card: ApprovalCard | QuestionCard | None = None
    names: tuple[PersonRef, ...] = ()
    is_foreign: bool = False
    summary: str = ""
    is_short: bool = False


def said(markdown: str, *buttons: Button) -> Message:
    """Our own text, with buttons below."""
    return Message(markdown=markdown, buttons=buttons)


def box_value(question_id: str, at: int) -> str:
    """The value of one option of a question."""
    return f"{question_id}:{at}"
