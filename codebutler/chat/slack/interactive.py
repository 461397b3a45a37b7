"""What people do with buttons and forms, as events. Pure. Slack: block_actions, view_submission.

A form that is sent is the press of its button, with words; a button in App Home is the same button in the thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from codebutler.chat.fields import Ignored, PayloadError, clean, mapping, optional, required, section
from codebutler.chat.slack import forms
from codebutler.chat.slack.answers import is_direct, thread_of, ts_of
from codebutler.domain.actions import DENY_ACTION, PICK_ACTION, REASON_ACTION
from codebutler.domain.model import ButtonClicked


@dataclass(frozen=True, slots=True)
class FormAsked:
    """Somebody wants to say why not: a form is to be opened within the three seconds that ``trigger_id`` lives."""

    click: ButtonClicked
    trigger_id: str
    at_home: bool = False


def interaction(payload: Mapping[str, Any]) -> ButtonClicked | FormAsked | Ignored:
    """The event in an interactive payload. Raises PayloadError for a malformed one."""
    match payload.get("type"):
        case "block_actions":
            return _pressed(payload)
        case "view_submission":
            return _submitted(payload)
    return Ignored(f"interaction {clean(str(payload.get('type')))[:40]}")


@dataclass(frozen=True, slots=True)
class PressedInVain:
    """Somebody pressed a button of a channel that is not served any more, there or (``at_home``) in App Home."""

    user: str
    channel: str
    thread_ts: str | None
    at_home: bool


def in_vain(click: ButtonClicked, payload: Mapping[str, Any]) -> PressedInVain:
    """What to say to somebody whose press nobody took."""
    return PressedInVain(click.user, click.channel, click.thread_ts, is_at_home(payload))


def is_at_home(payload: Mapping[str, Any]) -> bool:
    """Whether a button was pressed in App Home."""
    return section(payload, "container").get("type") == "view"


def is_form(payload: Mapping[str, Any]) -> bool:
    """Whether somebody waits before an open form for the answer to it."""
    return payload.get("type") == "view_submission"


def _pressed(payload: Mapping[str, Any]) -> ButtonClicked | FormAsked | Ignored:
    actions = payload.get("actions")
    if not isinstance(actions, list) or not actions or not isinstance(actions[0], Mapping):
        raise PayloadError("a block_actions payload without an action")
    action = actions[0]
    if action.get("action_id") == PICK_ACTION:
        return Ignored("a choice that is not sent yet")
    place = _place(payload, _value(action))
    if place is None:
        return Ignored("an interaction outside a channel")
    click = ButtonClicked(
        channel=place.channel,
        is_direct=is_direct(place.channel),
        user=required(mapping(payload, "user"), "id"),
        message_ts=ts_of(place.message_ts),
        action_id=required(action, "action_id"),
        value=place.value,
        action_ts=required(action, "action_ts"),
        thread_ts=place.thread_ts,
        user_name=_name(mapping(payload, "user")),
        picked=tuple(_picked(payload)),
    )
    if click.action_id == REASON_ACTION:
        return FormAsked(click, optional(payload, "trigger_id"), is_at_home(payload))
    return click


def _place(payload: Mapping[str, Any], value: str) -> forms.Placed | None:
    """Which message a button is about: the one it is on or, in App Home, the one it names."""
    container, message = section(payload, "container"), section(payload, "message")
    channel = optional(section(payload, "channel"), "id") or optional(container, "channel_id")
    if channel:
        ts = ts_of(container.get("message_ts") or message.get("ts"))
        thread_ts = thread_of(message) or thread_of(container)
        return forms.Placed(channel=channel, message_ts=ts, value=value, thread_ts=thread_ts)
    if container.get("type") != "view" or not value:
        return None
    return _checked(forms.placed(value))


def _submitted(payload: Mapping[str, Any]) -> ButtonClicked | Ignored:
    view = mapping(payload, "view")
    if view.get("callback_id") != forms.REASON_FORM:
        return Ignored("a form that is not ours")
    place = _checked(forms.placed(required(view, "private_metadata")))
    user = mapping(payload, "user")
    block = section(section(section(view, "state"), "values"), forms.REASON_BLOCK)
    return ButtonClicked(
        channel=place.channel,
        is_direct=is_direct(place.channel),
        user=required(user, "id"),
        message_ts=place.message_ts,
        action_id=DENY_ACTION,
        value=place.value,
        # One form is one press, however often it is delivered.
        action_ts=required(view, "id"),
        thread_ts=place.thread_ts,
        user_name=_name(user),
        words=optional(section(block, forms.REASON_INPUT), "value").strip()[: forms.REASON_CHARS],
    )


def _checked(place: forms.Placed) -> forms.Placed:
    ts_of(place.message_ts)
    if place.thread_ts is not None:
        ts_of(place.thread_ts)
    return place


def _picked(payload: Mapping[str, Any]) -> Iterator[str]:
    """The values of all boxes that are ticked where the button is."""
    state = section(payload, "state") or section(section(payload, "view"), "state")
    for block in section(state, "values").values():
        chosen = section(block, PICK_ACTION) if isinstance(block, Mapping) else {}
        options = chosen.get("selected_options")
        for option in options if isinstance(options, list) else ():
            if isinstance(option, Mapping) and (value := optional(option, "value")):
                yield value


def _name(user: Mapping[str, Any]) -> str:
    """How people call somebody; "" where Slack does not say. It decides nothing."""
    name = user.get("name") or user.get("username")
    return clean(name)[:80] if isinstance(name, str) else ""


def _value(action: Mapping[str, Any]) -> str:
    """A button's value, or what was chosen in a menu."""
    return optional(action, "value") or optional(section(action, "selected_option"), "value")
