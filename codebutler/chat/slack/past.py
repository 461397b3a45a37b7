"""Messages of ours as Slack's history tells them, read again as parts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from codebutler.actions import PICK_ACTION
from codebutler.chat.layout import Box, Section
from codebutler.chat.slack.escape import ZERO_WIDTH_SPACE, unescape
from codebutler.message import Button
from codebutler.text.markup import plain


def text_of(message: Mapping[str, Any]) -> str:
    """What somebody reads; "" if nothing."""
    text = message.get("text")
    return unescape(text).replace(ZERO_WIDTH_SPACE, "") if isinstance(text, str) else ""


def parts_of(message: Mapping[str, Any]) -> tuple[Section, ...]:
    """All of it, with its boxes and buttons: sections say what ``text``, which Slack bounds, may have to cut."""
    blocks = [block for block in _list(message.get("blocks")) if isinstance(block, Mapping)]
    texts = [unescape(_text(block)) for block in blocks if block.get("type") == "section"]
    shown = "\n".join(filter(None, texts)).replace(ZERO_WIDTH_SPACE, "") or text_of(message)
    rows = [block for block in blocks if block.get("type") == "actions"]
    elements = [each for row in rows for each in _list(row.get("elements")) if isinstance(each, Mapping)]
    boxes = tuple(box for each in elements for box in _boxes(each))
    buttons = tuple(
        Button(_text(each), str(each.get("action_id", "")), str(each.get("value", "")))
        for each in elements
        if each.get("type") == "button"
    )
    return (Section(plain(shown), buttons=buttons, boxes=boxes),)


def _boxes(element: Mapping[str, Any]) -> Iterator[Box]:
    if element.get("action_id") == PICK_ACTION:
        for option in _list(element.get("options")):
            if isinstance(option, Mapping):
                yield Box(_text(option), str(option.get("value", "")))


def _text(element: Mapping[str, Any]) -> str:
    text = element.get("text")
    return str(text.get("text", "")) if isinstance(text, Mapping) else ""


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
