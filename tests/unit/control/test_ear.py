"""Operations of a thread as a terminal hears them."""

from __future__ import annotations

from typing import Any

import pytest

from codebutler.control.ear import Ear, Spoken
from codebutler.control.messages import Choice, Said
from codebutler.model import Post, React, Update, Upload, Value

STOP, ALLOW = "codebutler.stop", "codebutler.allow"


def button(action_id: str, label: str = "Go", value: str = "v") -> dict[str, Any]:
    text = {"type": "plain_text", "text": label}
    return {"type": "button", "text": text, "action_id": action_id, "value": value}


def row(*elements: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    return ({"type": "section"}, {"type": "actions", "elements": list(elements)})


def post(text: str, *elements: dict[str, Any], thread_ts: str = "1.0", value: Value = "answer") -> Spoken:
    blocks = row(*elements) if elements else ()
    return Spoken(Post(text=text, thread_ts=thread_ts, blocks=blocks, value=value), "1.1")


def edit(text: str, *elements: dict[str, Any], value: Value = "progress") -> Spoken:
    blocks = row(*elements) if elements else ()
    return Spoken(Update(target_ts="1.1", text=text, blocks=blocks, value=value), "")


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
def test_of_what_kind_a_message_is(first: Spoken, kind: str, then: Spoken, kind_then: str) -> None:
    ear = Ear("1.0")
    heard = [ear.said(first), ear.said(then)]
    assert [said.kind for said in heard if said] == [kind, kind_then]
    assert {said.ts for said in heard if said} == {"1.1"}


def test_a_card_is_told_whole_however_much_of_it_its_text_holds() -> None:
    blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": part}} for part in ("a &lt;", "b")]
    spoken = Spoken(Post(text="a …", thread_ts="1.0", blocks=(*blocks, *row(button(ALLOW)))), "1.1")
    said = Ear("1.0").said(spoken)
    assert said is not None
    assert said.text == "a <\nb"


def test_only_its_own_thread_is_heard() -> None:
    ear = Ear("1.0")
    assert ear.said(post("elsewhere", thread_ts="0.5")) is None
    assert ear.said(edit("of a message elsewhere")) is None
    assert ear.said(Spoken(React(target_ts="1.0", name="eyes"), "")) is None
    assert ear.said(Spoken(Upload(filename="a", content=b"\xff", thread_ts="0.5"), "F1")) is None


def test_choices_are_buttons_and_boxes_but_no_forms() -> None:
    boxes = {
        "type": "checkboxes",
        "action_id": "codebutler.pick",
        "options": [{"text": {"type": "plain_text", "text": "red"}, "value": "q:0"}],
    }
    ear = Ear("1.0")
    said = ear.said(
        post("?", boxes, button("codebutler.answer", "Done", "q:ticked"), button("codebutler.deny_reason"))
    )
    assert said is not None
    assert said.choices == (
        Choice(label="red", action_id="codebutler.pick", value="q:0", box=True),
        Choice(label="Done", action_id="codebutler.answer", value="q:ticked"),
    )


def test_a_file_is_shown_unless_it_is_too_long_for_a_terminal() -> None:
    ear = Ear("1.1")
    for content, shown in (
        (b"x" * 200_000, "📎 a.log\n" + "x" * 200_000),
        (b"x" * 200_001, "📎 a.log, 0.2 MB: see the thread in Slack."),
        (b"\x1b[31m", "📎 a.log, 0.0 kB: see the thread in Slack."),
    ):
        said = ear.said(Spoken(Upload(filename="a.log", content=content, thread_ts="1.1"), "F1"))
        assert said is not None
        assert said.text == shown


def test_text_is_as_it_was_meant_and_without_secrets() -> None:
    ear = Ear("1.0")
    ear.redact = lambda text: text.replace("hunter2", "[redacted]")
    assert ear.said(post("a &lt;b&gt; @\u200bhere hunter2")) == Said(text="a <b> @here [redacted]", ts="1.1")
    card = ear.said(post("?", button(ALLOW, "hunter2")))
    assert card is not None
    assert card.choices[0].label == "[redacted]"
