"""Operations of a thread as a terminal hears them."""

from __future__ import annotations

import pytest

from codebutler.chat.listeners import Listener
from codebutler.domain.message import (
    ApprovalCard,
    Button,
    Message,
    Option,
    PermissionRequest,
    Question,
    QuestionCard,
    said,
)
from codebutler.domain.model import Operation, Post, React, Update, Upload, Value
from codebutler.protocol.control import Choice, Said

Told = tuple[Operation, str]
STOP, ALLOW = "codebutler.stop", "codebutler.allow"


def button(action_id: str, label: str = "Go", value: str = "v") -> Button:
    return Button(label, action_id, value)


def post(text: str, *buttons: Button, thread_ts: str = "1.0", value: Value = "answer") -> Told:
    return Post(message=said(text, *buttons), thread=thread_ts, value=value), "1.1"


def edit(text: str, *buttons: Button, value: Value = "progress") -> Told:
    return Update(target="1.1", message=said(text, *buttons), value=value), ""


def shown(listener: Listener, told: Told) -> Said | None:
    """What a terminal shows of it."""
    listener.delivered(*told)
    if listener.replies.empty():
        return None
    reply = listener.replies.get_nowait()
    assert isinstance(reply, Said)
    return reply


AT_WORK = post("🔧 claude is working · 0s", button(STOP), value="progress")
IN_LINE = post("⏳ Next in line.", button(STOP), value="progress")


@pytest.mark.parametrize(
    ("first", "kind", "then", "kind_then"),
    [
        (AT_WORK, "progress", edit("✅ 3s"), "progress"),
        (IN_LINE, "progress", edit("💬 hm · 3s", button(STOP)), "progress"),
        (IN_LINE, "progress", edit("```\nout\n```", value="answer"), "text"),
        (post("⏳ Running…", button(STOP)), "text", edit("✅ exit code 0"), "text"),
        (post("May I?", button(ALLOW)), "card", edit("May I?\nYes."), "card"),
        (post("said"), "text", edit("said better"), "text"),
    ],
)
def test_of_what_kind_a_message_is(first: Told, kind: str, then: Told, kind_then: str) -> None:
    listener = Listener("1.0")
    heard = [shown(listener, first), shown(listener, then)]
    assert [said.kind for said in heard if said] == [kind, kind_then]
    assert {said.ref for said in heard if said} == {"1.1"}


def test_a_card_is_told_whole() -> None:
    requests = (
        PermissionRequest(id="1", texts=("a <", "b"), verdict="x"),
        PermissionRequest(id="2", texts=("c",), verdict="y"),
    )
    heard = shown(Listener("1.0"), (Post(message=Message(card=ApprovalCard(requests)), thread="1.0"), "1.1"))
    assert heard is not None
    assert heard.text == "a <\nb\nx\nc\ny"


def test_only_its_own_thread_is_heard() -> None:
    listener = Listener("1.0")
    assert shown(listener, post("elsewhere", thread_ts="0.5")) is None
    assert shown(listener, edit("of a message elsewhere")) is None
    assert shown(listener, (React(target="1.0", mark="working"), "")) is None
    assert shown(listener, (Upload(filename="a", content=b"\xff", thread="0.5"), "F1")) is None


def test_choices_are_buttons_and_boxes_but_no_forms() -> None:
    asked = Question(id="q", text="?", options=(Option("red"),), several=True)
    form = PermissionRequest(id="r", texts=("May I?",))
    listener = Listener("1.0")
    heard = [
        shown(listener, (Post(message=Message(card=card), thread="1.0"), "1.1"))
        for card in (QuestionCard((asked,)), ApprovalCard((form,)))
    ]
    said, approval = heard
    assert approval is not None
    assert [choice.label for choice in approval.choices] == ["Allow", "Deny"]
    assert said is not None
    assert said.choices == (
        Choice(label="red", action_id="codebutler.pick", value="q:0", box=True),
        Choice(label="Done", action_id="codebutler.answer", value="q:ticked"),
    )


def test_a_file_is_shown_unless_it_is_too_long_for_a_terminal() -> None:
    listener = Listener("1.1")
    for content, text in (
        (b"x" * 200_000, "📎 a.log\n" + "x" * 200_000),
        (b"x" * 200_001, "📎 a.log, 0.2 MB: see its thread in the chat."),
        (b"\x1b[31m", "📎 a.log, 0.0 kB: see its thread in the chat."),
    ):
        said = shown(listener, (Upload(filename="a.log", content=content, thread="1.1"), "F1"))
        assert said is not None
        assert said.text == text


def test_text_is_as_it_was_meant_and_without_secrets() -> None:
    listener = Listener("1.0", redact=lambda text: text.replace("hunter2", "[redacted]"))
    assert shown(listener, post("a \\<b> @\u200bhere hunter2")) == Said(
        text="a <b> @here [redacted]", ref="1.1"
    )
    card = shown(listener, post("?", button(ALLOW, "hunter2")))
    assert card is not None
    assert card.choices[0].label == "[redacted]"
