"""What Slack refuses in blocks, by its documentation."""

from __future__ import annotations

import pytest

from codebutler.workspace import blocks as block_kit
from codebutler.workspace.state import Json, MethodError


def plain(text: str) -> Json:
    return {"type": "plain_text", "text": text}


def row(*elements: Json) -> Json:
    return {"type": "actions", "elements": list(elements)}


def button(**more: object) -> Json:
    return {"type": "button", "action_id": "a", "text": plain("Go"), **more}


def select(**more: object) -> Json:
    return {"type": "static_select", "options": [{"text": plain("One"), "value": "1"}], **more}


SECTION = {"type": "section", "text": plain("x")}
REFUSED: list[tuple[str, list[Json], str]] = [
    ("a type that is none", [{"type": "sektion", "text": plain("x")}], "/blocks/0/type"),
    ("no type", [{"text": plain("x")}], "/blocks/0/type"),
    ("an id twice", [{**SECTION, "block_id": "b"}, {**SECTION, "block_id": "b"}], "/blocks"),
    ("an action twice", [row(button(), button())], "/blocks/0"),
    ("a header in mrkdwn", [{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}], "/text/type"),
    ("a button in mrkdwn", [row(button(text={"type": "mrkdwn", "text": "x"}))], "/text/type"),
    ("an empty section", [{"type": "section", "text": plain("")}], "/text/text"),
    ("a string for a text", [{"type": "section", "text": "x"}], "/blocks/0/text"),
    ("a long field", [{"type": "section", "fields": [plain("x" * 2001)]}], "/fields/text"),
    ("a style of its own", [row(button(style="default"))], "/style"),
    ("no options", [row(select(options=[]))], "/options"),
    ("a long option", [row(select(options=[{"text": plain("x" * 76), "value": "1"}]))], "/options/text/text"),
    ("a button in a context", [{"type": "context", "elements": [button()]}], "/blocks/0/elements"),
    ("a picture without words", [{"type": "image", "image_url": "https://x.example/y.png"}], "/blocks/0"),
    ("a control that is none", [row({"type": "knob"})], "/blocks/0/type"),
    ("a long confirmation", [row(button(confirm={"title": plain("x" * 101)}))], "/confirm/title/text"),
    ("an input without a label", [{"type": "input", "element": select()}], "/blocks/0/label"),
]


@pytest.mark.parametrize(("blocks", "where"), [one[1:] for one in REFUSED], ids=[one[0] for one in REFUSED])
def test_it_is_refused_with_its_place(blocks: list[Json], where: str) -> None:
    with pytest.raises(MethodError) as refused:
        block_kit.checked_blocks(blocks)
    assert refused.value.code == "invalid_blocks"
    assert f"{where}]" in refused.value.details[0]


def test_what_slack_takes_is_taken() -> None:
    confirm = {
        "title": plain("Sure?"),
        "text": {"type": "mrkdwn", "text": "*Really*"},
        "confirm": plain("Yes"),
    }
    blocks: list[Json] = [
        {"type": "divider"},
        {"type": "header", "text": plain("x" * 150)},
        {"type": "section", "text": {"type": "mrkdwn", "text": "x" * 3000}, "accessory": select()},
        {
            "type": "context",
            "elements": [plain("x"), {"type": "image", "alt_text": "x", "image_url": "https://x"}],
        },
        row(button(confirm=confirm), button(action_id="b", style="danger"), {"type": "external_select"}),
        {"type": "rich_text", "elements": []},
        {"type": "table", "rows": []},
        {"type": "input", "label": plain("x"), "element": {"type": "plain_text_input"}},
    ]
    kept = block_kit.checked_blocks(blocks)
    assert len({block["block_id"] for block in kept}) == len(blocks)
