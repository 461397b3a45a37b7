"""What is said, as meaning: text, buttons, choices and cards. How it looks is each chat's business.

Text is Markdown (see ``codebutler.text.markup``). Imports nothing of ours. Buttons are known by their ``action_id`` to
both processes and the chats: those are part of the contract.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")
Style = Literal["", "primary", "danger"]
_OF_OURS = frozenset({"style", "kind"})
"""Fields that hold one of a few words, not texts."""


class Button(Struct, frozen=True, omit_defaults=True):
    """Something to press: ``action`` is one of those above or below, ``value`` what it is about."""

    label: str
    action: str
    value: str
    style: Style = ""


class Option(Struct, frozen=True, omit_defaults=True):
    """One of the answers to a question, and what explains it ("" = nothing)."""

    label: str
    detail: str = ""


class PermissionRequest(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One request for permission: ``texts`` say what is asked, each a part of its own that must be shown whole.

    ``scope`` is what "for this session" would cover, "" where it is not offered. ``votes`` (Markdown) of the ``needed``
    people have allowed it; ``verdict`` is what became of it, "" while it is open. A plan is the agent's own Markdown.
    """

    id: str
    texts: tuple[str, ...]
    scope: str = ""
    needed: int = 1
    votes: tuple[str, ...] = ()
    verdict: str = ""
    is_plan: bool = False


class Question(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One question. ``text`` is plain, not Markdown. ``several``: more than one option may be chosen. ``verdict``
    (Markdown) is what became of it, "" while it is open."""

    id: str
    text: str
    options: tuple[Option, ...] = ()
    several: bool = False
    verdict: str = ""


class ApprovalCard(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="approval"):
    """Asks whether calls may run; each is decided by itself, or all that are open at once."""

    requests: tuple[PermissionRequest, ...]


class QuestionCard(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="question"):
    """Asks what people want; ``ticked`` are the values of the boxes that somebody has ticked."""

    questions: tuple[Question, ...]
    ticked: tuple[str, ...] = ()


class Message(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """``markdown`` above ``buttons``, or a ``card``.

    ``is_foreign``: all of it is an agent's own Markdown. ``names``: users who may be named by a mention. ``summary``:
    it is a quiet note, of which a notification says this. ``is_short``: said as short text alone, as the chat has
    refused more than that.
    """

    markdown: str = ""
    buttons: tuple[Button, ...] = ()
    card: ApprovalCard | QuestionCard | None = None
    names: tuple[str, ...] = ()
    is_foreign: bool = False
    summary: str = ""
    is_short: bool = False


def said(markdown: str, *buttons: Button) -> Message:
    """Words of ours, with buttons below."""
    return Message(markdown=markdown, buttons=buttons)


def every_text(value: T, change: Callable[[str], str]) -> T:
    """The same with every text in it changed."""
    changed: T = _changed(value, change)
    return changed


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple):
        return tuple(_changed(each, change) for each in value)
    if isinstance(value, Struct):
        fields = (name for name in value.__struct_fields__ if name not in _OF_OURS)
        return replace(value, **{name: _changed(getattr(value, name), change) for name in fields})
    return value


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
