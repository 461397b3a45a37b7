"""Buttons and forms as events; and the form that asks for a reason. Slack: block_actions, view_submission,
views.open.

A submitted form is the press of its button, with words; a button in App Home is the same button as in the
thread. Both belong to no channel: they carry the place of what they decide (``Placed``).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from codebutler.chat.layout import REASON_CHARS, Placed, ReasonForm, packed, placed
from codebutler.chat.payload import (
    Ignored,
    PayloadError,
    clean,
    mapping,
    mappings,
    optional,
    required,
    section,
)
from codebutler.chat.port import Forms
from codebutler.chat.slack.answers import DIRECT, thread_of, ts_of
from codebutler.domain.errors import ChatError, StoreError
from codebutler.domain.message import DENY_ACTION, PICK_ACTION, REASON_ACTION
from codebutler.domain.model import ButtonClicked
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.intake.intake import Intake
from codebutler.platform.tasks import Tasks

REASON_FORM = "codebutler.deny_form"
"""The ``callback_id`` of the form that asks for a reason."""
REASON_BLOCK = "reason"
REASON_INPUT = "codebutler.reason"
IN_WORDS = "Write `no, because …` here."
INSTEAD = "The form did not open in time: press the button again, or write `no, because …` here."

log = logging.getLogger("codebutler.chat.slack.forms")


def reason_view(form: ReasonForm) -> dict[str, Any]:
    """The form as a modal."""
    return {
        "type": "modal",
        "callback_id": REASON_FORM,
        "private_metadata": packed(form.place),
        "title": _plain(form.title),
        "submit": _plain("Keep planning" if form.is_plan else "Deny"),
        "close": _plain("Cancel"),
        "blocks": [
            {
                "type": "input",
                "block_id": REASON_BLOCK,
                "label": _plain(form.question),
                "hint": _plain(form.hint),
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
    """The answer to a form that was not accepted: it stays open with its text. ``why`` is one line."""
    return {"response_action": "errors", "errors": {REASON_BLOCK: why}}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "plain_text", "text": text}


class FormAsked(Struct, frozen=True):
    """Somebody wants to give a reason: open a form within the three seconds that ``trigger_id`` lives."""

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


class PressedInVain(Struct, frozen=True):
    """Somebody pressed a button of a channel that is no longer served, there or (``at_home``) in App Home."""

    user: PersonRef
    channel: ConversationRef
    thread: MessageRef | None
    at_home: bool


def in_vain(click: ButtonClicked, payload: Mapping[str, Any]) -> PressedInVain:
    """The notice for somebody whose press had no effect."""
    return PressedInVain(click.user, click.channel, click.thread, is_at_home(payload))


def is_at_home(payload: Mapping[str, Any]) -> bool:
    """Whether a button was pressed in App Home."""
    return section(payload, "container").get("type") == "view"


def is_form(payload: Mapping[str, Any]) -> bool:
    """Whether somebody waits at an open form for its answer."""
    return payload.get("type") == "view_submission"


def _pressed(payload: Mapping[str, Any]) -> ButtonClicked | FormAsked | Ignored:
    if not (actions := mappings(payload, "actions")):
        raise PayloadError("a block_actions payload without an action")
    action = actions[0]
    if action.get("action_id") == PICK_ACTION:
        return Ignored("a choice that is not submitted yet")
    place = _place(payload, _value(action))
    if place is None:
        return Ignored("an interaction outside a channel")
    click = ButtonClicked(
        channel=place.channel,
        is_direct=place.channel.startswith(DIRECT),
        user=PersonRef(required(mapping(payload, "user"), "id")),
        message=ts_of(place.message),
        action_id=required(action, "action_id"),
        value=place.value,
        press=required(action, "action_ts"),
        thread=place.thread,
        user_name=_name(mapping(payload, "user")),
        picked=tuple(_picked(payload)),
    )
    if click.action_id == REASON_ACTION:
        return FormAsked(click, optional(payload, "trigger_id"), is_at_home(payload))
    return click


def _place(payload: Mapping[str, Any], value: str) -> Placed | None:
    """The message a button is about: its own or, in App Home, the one it names."""
    container, message = section(payload, "container"), section(payload, "message")
    channel = optional(section(payload, "channel"), "id") or optional(container, "channel_id")
    if channel:
        ts = ts_of(container.get("message_ts") or message.get("ts"))
        thread_ts = thread_of(message) or thread_of(container)
        return Placed(channel=ConversationRef(channel), message=ts, value=value, thread=thread_ts)
    if container.get("type") != "view" or not value:
        return None
    return _checked(placed(value))


def _submitted(payload: Mapping[str, Any]) -> ButtonClicked | Ignored:
    view = mapping(payload, "view")
    if view.get("callback_id") != REASON_FORM:
        return Ignored("a form that is not ours")
    place = _checked(placed(required(view, "private_metadata")))
    user = mapping(payload, "user")
    block = section(section(section(view, "state"), "values"), REASON_BLOCK)
    return ButtonClicked(
        channel=place.channel,
        is_direct=place.channel.startswith(DIRECT),
        user=PersonRef(required(user, "id")),
        message=place.message,
        action_id=DENY_ACTION,
        value=place.value,
        # One form is one press, however often it is delivered.
        press=required(view, "id"),
        thread=place.thread,
        user_name=_name(user),
        words=optional(section(block, REASON_INPUT), "value").strip()[:REASON_CHARS],
    )


def _checked(place: Placed) -> Placed:
    ts_of(place.message)
    if place.thread is not None:
        ts_of(place.thread)
    return place


def _picked(payload: Mapping[str, Any]) -> Iterator[str]:
    """The values of all ticked boxes beside the button."""
    state = section(payload, "state") or section(section(payload, "view"), "state")
    for block in section(state, "values").values():
        chosen = section(block, PICK_ACTION) if isinstance(block, Mapping) else {}
        for option in mappings(chosen, "selected_options"):
            if value := optional(option, "value"):
                yield value


def _name(user: Mapping[str, Any]) -> str:
    """Somebody's name; "" if Slack does not give it. It decides nothing."""
    name = user.get("name") or user.get("username")
    return clean(name)[:80] if isinstance(name, str) else ""


def _value(action: Mapping[str, Any]) -> str:
    """A button's value, or the choice in a menu."""
    return optional(action, "value") or optional(section(action, "selected_option"), "value")


class Reasons:
    """Opens the form at once: the right to do so lives three seconds (Slack: trigger_id).

    Nothing is decided before the form is submitted, so nothing has to be stored. If it does not open, or the
    chat has no forms, the thread says so; a no with its reason can be written there as well. ``notice`` posts
    in a channel and thread; ``in_vain`` is called with a press that had no effect.
    """

    def __init__(
        self,
        forms: Forms | None,
        intake: Intake,
        notice: Callable[[ConversationRef, str, MessageRef | None], Awaitable[None]],
        tasks: Tasks,
        in_vain: Callable[[PressedInVain], None],
    ) -> None:
        self._forms = forms
        self._intake = intake
        self._notice = notice
        self._tasks = tasks
        self._in_vain = in_vain

    def asked(self, wish: FormAsked) -> None:
        """Somebody has pressed the button; returns at once."""
        self._tasks.start(self._open(wish), name=f"form for {wish.click.user}")

    async def _open(self, wish: FormAsked) -> None:
        click = wish.click
        place = Placed(
            channel=click.channel,
            message=click.message,
            value=click.value,
            thread=click.thread,
        )
        try:
            if not self._intake.serves(click):
                self._in_vain(PressedInVain(click.user, click.channel, click.thread, wish.at_home))
                return
            if not await self._intake.admits(click):
                return
            if self._forms is None:
                await self._notice(click.channel, IN_WORDS, click.thread or click.message)
                return
            await self._forms.open_form(wish.trigger_id, ReasonForm(place))
        except (ChatError, StoreError) as error:
            log.warning("a form could not be opened: %s", error)
            await self._notice(click.channel, INSTEAD, click.thread or click.message)
