"""The layout of a message in any chat: parts of text, each with its buttons below. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.payload import PayloadError
from codebutler.domain.message import (
    ALLOW_ACTION,
    ALLOW_SESSION_ACTION,
    ANSWER_ACTION,
    DENY_ACTION,
    DROP_ACTION,
    REASON_ACTION,
    RETRY_ACTION,
    TICKED,
    TOGETHER,
    ApprovalCard,
    Button,
    Message,
    PermissionRequest,
    Question,
    QuestionCard,
    box_value,
)
from codebutler.domain.model import Asked, TurnNote
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.text.markup import clip, plain

REASON_CHARS = 1000
"""Characters of the text in a ReasonForm."""
PLAN = ":plan"
"""In a button's value, after the request's ID: it refuses a plan."""
QUESTION_CHARS = 2000
"""For all questions on a card; the details of their options may take half as much again."""


class Box(Struct, frozen=True):
    """A box to tick; ``value`` names its question and its option."""

    label: str
    value: str
    detail: str = ""
    ticked: bool = False


class Section(Struct, frozen=True):
    """A part of a message. "whole": a person decides about all of it, so none of it is folded away;
    "foreign": an agent's own Markdown, "plan" is both. ``begins``: it is set apart from the part above."""

    markdown: str = ""
    kind: Literal["text", "whole", "foreign", "plan", "heading", "note"] = "text"
    buttons: tuple[Button, ...] = ()
    boxes: tuple[Box, ...] = ()
    begins: bool = False


class Placed(
    Struct,
    frozen=True,
    kw_only=True,
    rename={"channel": "c", "message": "m", "value": "v", "thread": "t"},
):
    """A button's meaning, and its message. Short names: chats limit the size of a button's value."""

    channel: ConversationRef
    message: MessageRef
    value: str
    thread: MessageRef | None = None


def placed(text: str) -> Placed:
    """Read what ``packed`` wrote. Raises PayloadError."""
    try:
        return msgspec.json.decode(text, type=Placed)
    except msgspec.DecodeError:
        raise PayloadError("a button that does not say which message it is about") from None


def packed(place: Placed) -> str:
    """As the value of a button, or of a form."""
    return msgspec.json.encode(place).decode()


class ReasonForm(Struct, frozen=True):
    """A form that asks for a reason: submitting it presses the refusing button of ``place`` with those words."""

    place: Placed

    @property
    def is_plan(self) -> bool:
        """Whether it refuses a plan."""
        return self.place.value.endswith(PLAN)

    @property
    def title(self) -> str:
        """The form's title."""
        return "Keep planning" if self.is_plan else "Deny with a reason"

    @property
    def question(self) -> str:
        """The form's label."""
        return "What should be different?" if self.is_plan else "Why not, or what instead?"

    @property
    def hint(self) -> str:
        """The form's hint."""
        return "The agent reads it, and the card shows it."


def sections(message: Message) -> tuple[Section, ...]:
    """Every part of the message, from the top."""
    if message.summary:
        return (Section(message.markdown, "note"),)
    match message.card:
        case ApprovalCard(requests):
            return _approvals(requests)
        case QuestionCard(questions, ticked):
            return _questions(questions, ticked)
        case _:
            return (Section(message.markdown, "foreign" if message.is_foreign else "text", message.buttons),)


def done_button(question_id: str) -> Button:
    """Below boxes: the ticked boxes are the answer."""
    return Button("Done", ANSWER_ACTION, f"{question_id}:{TICKED}", "primary")


def asked_part(asked: Asked) -> Section:
    """A request or a question away from its card, with the buttons of that card."""
    values = [box_value(asked.id, at) for at in range(len(asked.options))]
    if asked.several and asked.options:
        boxes = tuple(Box(label, value) for label, value in zip(asked.options, values, strict=True))
        return Section(asked.text, boxes=boxes, buttons=(done_button(asked.id),))
    if asked.is_question:
        offered = zip(asked.options, values, strict=True)
        return Section(
            asked.text, buttons=tuple(Button(label, ANSWER_ACTION, value) for label, value in offered)
        )
    decisions = (
        Button("Allow", ALLOW_ACTION, asked.id, "primary"),
        Button("Deny", DENY_ACTION, asked.id, "danger"),
        Button("Deny with a reason…", REASON_ACTION, asked.id),
    )
    return Section(asked.text, buttons=decisions)


def going_on(turn: TurnNote) -> tuple[Button, ...]:
    """The buttons of a run that was interrupted or waits for a limit."""
    go_on = "Try now" if turn.state == "parked" else "Continue"
    return Button(go_on, RETRY_ACTION, turn.id, "primary"), Button("Drop", DROP_ACTION, turn.id)


def _approvals(requests: Sequence[PermissionRequest]) -> tuple[Section, ...]:
    """Asks whether the calls may run, with buttons for each, and one for all open ones."""
    open_ = [request for request in requests if not request.verdict]
    found: list[Section] = []
    for request in requests:
        hint = [_hint(request)] if open_ == [request] else []
        last = "\n".join([*request.texts[-1:], *_state(request), *hint])
        kind: Literal["plan", "whole"] = "plan" if request.is_plan else "whole"
        parts = [Section(text, kind) for text in (*request.texts[:-1], last)]
        parts[0] = replace(parts[0], begins=bool(found))
        parts[-1] = replace(parts[-1], buttons=() if request.verdict else _decisions(request))
        found += parts
    if len(open_) > 1:
        ids = TOGETHER.join(request.id for request in open_)
        found.append(Section(buttons=(Button(f"Allow all {len(open_)}", ALLOW_ACTION, ids),)))
    return tuple(found)


def _state(request: PermissionRequest) -> list[str]:
    if request.verdict:
        return [request.verdict]
    if request.needed == 1:
        return []
    who = f": {', '.join(request.votes)}" if request.votes else ""
    return [f"👥 {request.needed} approvals needed; {len(request.votes)} given{who}."]


def _hint(request: PermissionRequest) -> str:
    if request.is_plan:
        return "Or reply `yes`, or `no, …` with what to change."
    hint = "Or reply `yes` or `no, because …` here."
    return f"{hint} _Allow for this session_ covers {plain(request.scope)}." if request.scope else hint


def _decisions(request: PermissionRequest) -> tuple[Button, ...]:
    if request.is_plan:
        return (
            Button("Approve", ALLOW_ACTION, request.id, "primary"),
            Button("Keep planning", DENY_ACTION, request.id),
            Button("Say what to change…", REASON_ACTION, f"{request.id}{PLAN}"),
        )
    session = (Button("Allow for this session", ALLOW_SESSION_ACTION, request.id),) if request.scope else ()
    return (
        Button("Allow", ALLOW_ACTION, request.id, "primary"),
        *session,
        Button("Deny", DENY_ACTION, request.id, "danger"),
        Button("Deny with a reason…", REASON_ACTION, request.id),
    )


def _questions(questions: Sequence[Question], ticked: Collection[str]) -> tuple[Section, ...]:
    """The questions, each with its options: buttons, or boxes and a button if several may be chosen."""
    open_ = [each for each in questions if not each.verdict]
    room = QUESTION_CHARS // max(len(questions), 1)
    found: list[Section] = []
    for number, each in enumerate(questions, 1):
        count = f"**{number} of {len(questions)}** " if len(questions) > 1 else ""
        text = clip(f"🤔 {plain(each.text) or '…'}", room)
        lines = [f"{count}{text}", *_below(each, room, len(open_), first=each in open_[:1])]
        found.append(replace(_choices(each, ticked), markdown="\n".join(lines), begins=bool(found)))
    return tuple(found)


def _below(question: Question, room: int, still_open: int, *, first: bool) -> list[str]:
    if question.verdict:
        return [question.verdict]
    details = [
        f"• **{plain(option.label)}**: {plain(option.detail)}"
        for option in question.options
        if option.detail and not question.several
    ]
    explained = [clip("\n".join(details), room // 2)] if details else []
    if not first:
        return explained
    ways = "Answer"
    if question.options:
        ways = "Choose one or more, or answer" if question.several else "Choose one, or answer"
    which = " Your message answers this question." if still_open > 1 else ""
    return [*explained, f"{ways} in your own words here.{which}"]


def _choices(question: Question, ticked: Collection[str]) -> Section:
    if question.verdict or not question.options:
        return Section()
    values = [box_value(question.id, at) for at in range(len(question.options))]
    offered = list(zip(question.options, values, strict=True))
    if not question.several:
        buttons = tuple(Button(option.label, ANSWER_ACTION, value) for option, value in offered)
        return Section(buttons=buttons)
    boxes = tuple(Box(option.label, value, option.detail, value in ticked) for option, value in offered)
    return Section(boxes=boxes, buttons=(done_button(question.id),))
