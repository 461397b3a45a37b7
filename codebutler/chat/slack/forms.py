"""Modals of ours as data, and what a button outside a channel has to carry. Pure. Slack: views.open.

A button in App Home, and a modal, belong to no channel: they carry where what they decide about is (``Placed``).
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from codebutler.chat.fields import PayloadError

REASON_FORM = "codebutler.deny_form"
"""The ``callback_id`` of the form that asks why not."""
REASON_BLOCK = "reason"
REASON_INPUT = "codebutler.reason"
REASON_CHARS = 1000
PLAN = "plan"
"""In a button's value, behind the request's ID: it is a plan that would be refused."""


class Placed(
    Struct,
    frozen=True,
    kw_only=True,
    rename={"channel": "c", "message_ts": "m", "value": "v", "thread_ts": "t"},
):
    """What a button means, and the message it stands for. Few letters: Slack takes 2,000 in a button's value."""

    channel: str
    message_ts: str
    value: str
    thread_ts: str | None = None


def placed(text: str) -> Placed:
    """Read what ``packed`` wrote. Raises PayloadError."""
    try:
        return msgspec.json.decode(text, type=Placed)
    except msgspec.DecodeError:
        raise PayloadError("a view that does not say which message it is about") from None


def packed(place: Placed) -> str:
    """As a button's value or a modal's private metadata."""
    return msgspec.json.encode(place).decode()


def reason_form(place: Placed) -> dict[str, Any]:
    """Asks why not; sent, it refuses."""
    plan = place.value.endswith(f":{PLAN}")
    title = "Keep planning" if plan else "Deny with a reason"
    label = "What should be different?" if plan else "Why not, or what instead?"
    return {
        "type": "modal",
        "callback_id": REASON_FORM,
        "private_metadata": packed(place),
        "title": _plain(title),
        "submit": _plain("Keep planning" if plan else "Deny"),
        "close": _plain("Cancel"),
        "blocks": [
            {
                "type": "input",
                "block_id": REASON_BLOCK,
                "label": _plain(label),
                "hint": _plain("The agent reads it, and the card shows it."),
                "element": {
                    "type": "plain_text_input",
                    "action_id": REASON_INPUT,
                    "multiline": True,
                    "max_length": REASON_CHARS,
                    "focus_on_load": True,
                },
            }
        ],
    }


def form_refused(why: str) -> dict[str, Any]:
    """The answer to a form that was not taken: it stays open with what was written. ``why`` is one line."""
    return {"response_action": "errors", "errors": {REASON_BLOCK: why}}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}
