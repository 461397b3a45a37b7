"""Messages and cards as Telegram shows them."""

from __future__ import annotations

from codebutler.chat.telegram.render import Mentions, render_message
from codebutler.domain.message import (
    ALLOW_ACTION,
    ANSWER_ACTION,
    PICK_ACTION,
    ApprovalCard,
    Button,
    Message,
    Option,
    PermissionRequest,
    Question,
    QuestionCard,
    said,
)
from codebutler.text.markup import fence


def labels(message: Message) -> list[list[str]]:
    return [[key.label for key in row] for row in render_message(message).button_rows]


def test_buttons_stand_below_the_last_part() -> None:
    shown = render_message(said("word " * 2000, Button("Stop", "codebutler.stop", "t1", "danger")))
    assert len(shown.parts) == 3
    assert [[(key.label, key.value, key.style) for key in row] for row in shown.button_rows] == [
        [("Stop", "t1", "danger")]
    ]


def test_an_approval_says_all_of_it_and_offers_each_way() -> None:
    command = fence("rm -rf build")
    card = ApprovalCard((PermissionRequest(id="r1", texts=(f"Run this?\n{command}",), scope="rm"),))
    shown = render_message(Message(card=card))
    assert "rm -rf build" in shown.parts[0].text
    assert labels(Message(card=card)) == [
        ["Allow", "Allow for this session"],
        ["Deny", "Deny with a reason…"],
    ]
    assert [key.style for row in shown.button_rows for key in row] == ["primary", "", "danger", ""]


def test_of_several_requests_each_button_says_which() -> None:
    card = ApprovalCard(
        (PermissionRequest(id="r1", texts=("One?",)), PermissionRequest(id="r2", texts=("Two?",)))
    )
    shown = render_message(Message(card=card))
    assert "1. One?" in shown.parts[0].text
    assert "2. Two?" in shown.parts[0].text
    every = [key for row in shown.button_rows for key in row]
    assert [key.label for key in every if key.action == ALLOW_ACTION] == [
        "1. Allow",
        "2. Allow",
        "Allow all 2",
    ]
    assert every[-1].value == "r1,r2"


def test_of_several_answers_boxes_can_be_ticked() -> None:
    question = Question(
        id="q1", text="Which?", options=(Option("One", "the first"), Option("Two")), several=True
    )
    shown = render_message(Message(card=QuestionCard((question,), ticked=("q1:1",))))
    assert "• One: the first" in shown.parts[0].text
    assert [[key.label for key in row] for row in shown.button_rows] == [["☐ One"], ["☑ Two"], ["Done"]]
    assert [row[0].action for row in shown.button_rows] == [PICK_ACTION, PICK_ACTION, ANSWER_ACTION]


def test_who_is_called_is_named_at_the_top() -> None:
    shown = render_message(Message(markdown="Done."), "tg:111", Mentions(name_of=lambda _user: "Ana"))
    (part,) = shown.parts
    assert part.text == "Ana Done."
    user = {"id": 111, "is_bot": False, "first_name": "Ana"}
    assert part.as_json() == [{"type": "text_mention", "offset": 0, "length": 3, "user": user}]


def test_an_agents_markdown_calls_nobody() -> None:
    shown = render_message(Message(markdown="[@tg:111](person:tg:111) @ana", is_foreign=True))
    assert all(entity.kind == "code" for entity in shown.parts[0].entities)


def test_nothing_at_all_is_said_so() -> None:
    assert render_message(Message()).parts[0].text == "(this message cannot be shown)"


def test_short_is_plain() -> None:
    (part,) = render_message(Message(markdown="**a**", is_foreign=True, is_short=True)).parts
    assert (part.text, part.entities) == ("a", ())
