"""The effects of presses: most are events; ticks are handled here, and so is the question for a reason.

Telegram shows a spinner until a press is answered, so each press is answered, whatever its effect.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.layout import Placed, ReasonForm
from codebutler.chat.port import Call
from codebutler.chat.telegram.chat import TelegramChat
from codebutler.chat.telegram.entities import Builder
from codebutler.chat.telegram.inbox import IncomingEvents
from codebutler.chat.telegram.records import ButtonMeaning, ReasonPrompt
from codebutler.chat.telegram.render import Mentions, write_mention
from codebutler.chat.telegram.rules import is_private
from codebutler.chat.telegram.updates import ButtonPressed
from codebutler.domain.errors import ChatError, ChatRateLimitedError, StoreError
from codebutler.domain.message import PICK_ACTION, REASON_ACTION
from codebutler.domain.model import ButtonClicked
from codebutler.domain.refs import NOWHERE
from codebutler.intake.intake import Intake, Outcome
from codebutler.platform.tasks import Tasks

TOAST_CHARS = 200
UNKNOWN = "This button is out of date: use the newest message."
REFUSED = "You are not authorized to decide this."
IGNORED = "This chat is no longer served: nothing was decided."
PRESSED_TWICE = "You just pressed this."
NO_PROMPT = "That did not work: write `no, because …` as a reply instead."

_REFUSALS: Mapping[Outcome, str] = {"refused": REFUSED, "ignored": IGNORED}

log = logging.getLogger("codebutler.chat.telegram")


class PressHandler:
    """Handles button presses. ``handle`` raises StoreError for a press that could not be stored: it is delivered
    again."""

    def __init__(
        self, chat: TelegramChat, sender: Sender, inbox: IncomingEvents, intake: Intake, tasks: Tasks
    ) -> None:
        self._api = chat.api
        self._records = chat.records
        self._buttons = chat.buttons
        self._sender = sender
        self._inbox = inbox
        self._intake = intake
        self._tasks = tasks
        self._redrawing: set[tuple[int, int]] = set()
        """Messages whose ticks are not shown yet."""

    async def handle(self, pressed: ButtonPressed) -> None:
        """Returns once its meaning is on disk, or nothing has to be."""
        button = await self._buttons.meaning_of(pressed.data, pressed.spot.chat)
        if button is None or not await self._carries_button(button, pressed):
            self._answer(pressed, UNKNOWN)
            return
        place = await self._inbox.place_of_press(pressed, button)
        click = ButtonClicked(
            channel=place.channel,
            is_direct=is_private(place.channel),
            user=pressed.user,
            message=place.message,
            action_id=button.action,
            value=place.value,
            press=pressed.id,
            thread=place.thread,
            user_name=pressed.name,
        )
        if button.is_home and button.action == PICK_ACTION:
            # Nobody else sees a home; whether this person may submit is checked when they do.
            self._start(self._tick(pressed), "tick", pressed)
            return
        if button.action in (PICK_ACTION, REASON_ACTION):
            await self._tick_or_ask_reason(pressed, click)
            return
        if self._buttons.is_repeated(pressed.data, pressed.user):
            self._answer(pressed, PRESSED_TWICE)
            return
        try:
            outcome = await self._intake.accept(replace(click, picked=await self._ticked_values(pressed)))
        except StoreError:
            self._buttons.forget_press(pressed.data, pressed.user)
            raise
        if outcome in _REFUSALS:
            self._buttons.forget_press(pressed.data, pressed.user)
        else:
            self._redrawing.discard((pressed.spot.chat, pressed.spot.message))
        self._answer(pressed, _REFUSALS.get(outcome, ""))

    async def _carries_button(self, button: ButtonMeaning, pressed: ButtonPressed) -> bool:
        """Whether the pressed message carries the button, or is an unknown copy of it: a message sent without
        an answer may exist twice."""
        if button.message in (0, pressed.spot.message):
            return True
        return not (await self._records.get(pressed.spot.chat, pressed.spot.message)).is_ours

    async def _tick_or_ask_reason(self, pressed: ButtonPressed, click: ButtonClicked) -> None:
        """Presses that decide nothing yet, but only for people who may decide."""
        if not self._intake.serves(click):
            self._answer(pressed, IGNORED)
        elif not await self._intake.admits(click):
            self._answer(pressed, REFUSED)
        elif click.action_id == PICK_ACTION:
            self._start(self._tick(pressed), "tick", pressed)
        else:
            self._start(self._ask_reason(pressed, click), "question", pressed)

    async def _tick(self, pressed: ButtonPressed) -> None:
        keys = (key for row in pressed.button_rows for key in row if key.get("callback_data") == pressed.data)
        label = str(next(keys, {}).get("text", ""))
        if not label:
            self._answer(pressed, UNKNOWN)
            return
        self._buttons.flip(pressed.data, label)
        self._answer(pressed, "")
        place = pressed.spot.chat, pressed.spot.message
        if place not in self._redrawing:
            self._redrawing.add(place)
            await self._call_within_limits("update", pressed, partial(self._redraw, pressed))

    async def _redraw(self, pressed: ButtonPressed) -> None:
        """Show all that is ticked by now, unless the answer was sent meanwhile: the card may have no boxes any more."""
        chat, message = place = pressed.spot.chat, pressed.spot.message
        if place not in self._redrawing:
            return
        self._redrawing.discard(place)
        rows = [[self._with_current_label(key) for key in row] for row in pressed.button_rows]
        markup = {"inline_keyboard": rows}
        try:
            await self._api.call(
                "editMessageReplyMarkup", chat_id=chat, message_id=message, reply_markup=markup
            )
        except ChatRateLimitedError:
            self._redrawing.add(place)
            raise

    def _with_current_label(self, key: Mapping[str, Any]) -> dict[str, Any]:
        fields = {name: key[name] for name in ("text", "callback_data", "style") if name in key}
        return {
            **fields,
            "text": self._buttons.current_label(str(key.get("callback_data")), str(key.get("text", ""))),
        }

    async def _ticked_values(self, pressed: ButtonPressed) -> tuple[str, ...]:
        """The values of the boxes that are ticked beside it. Raises StoreError."""
        values: list[str] = []
        for key in (key for row in pressed.button_rows for key in row):
            data, label = str(key.get("callback_data", "")), str(key.get("text", ""))
            button = await self._buttons.meaning_of(data, pressed.spot.chat)
            if button is not None and button.action == PICK_ACTION and self._buttons.is_ticked(data, label):
                values.append(button.value)
        return tuple(values)

    async def _ask_reason(self, pressed: ButtonPressed, click: ButtonClicked) -> None:
        """Ask for a reason. The answer comes as a reply to this message."""
        place = Placed(channel=click.channel, message=click.message, value=click.value)
        form = ReasonForm(place)
        out = Builder()
        if not pressed.spot.is_direct:
            # Telegram asks only the person mentioned to reply.
            write_mention(out, pressed.user, Mentions(name_of=lambda _user: pressed.name))
            out.write(": ")
        out.write(form.question)
        text = out.build()
        send = partial(
            self._api.call,
            "sendMessage",
            chat_id=pressed.spot.chat,
            message_thread_id=pressed.spot.topic or None,
            text=text.text,
            entities=text.as_json() or None,
            reply_parameters={"message_id": pressed.spot.message, "allow_sending_without_reply": True},
            reply_markup={
                "force_reply": True,
                "selective": not pressed.spot.is_direct,
                "input_field_placeholder": form.hint,
            },
        )
        sent = await self._call_within_limits("post", pressed, send)
        number = sent.get("message_id") if isinstance(sent, Mapping) else None
        if not isinstance(number, int):
            self._answer(pressed, NO_PROMPT)
            return
        prompt = ReasonPrompt(click.message, click.value, click.thread or NOWHERE, click.channel)
        known = await self._records.get(pressed.spot.chat, pressed.spot.message)
        thread = known.thread or self._records.ref(pressed.spot.chat, pressed.spot.message)
        await self._records.update(
            pressed.spot.chat, number, lambda known: replace(known, asked=prompt, thread=thread)
        )
        self._answer(pressed, "")

    def delete_prompt(self, chat: int, prompt: int) -> None:
        """The question was answered: delete it."""
        work = self._call_best_effort("deleteMessage", chat_id=chat, message_id=prompt)
        self._tasks.start(work, name=f"question {prompt}")

    def _start(self, work: Coroutine[object, object, None], what: str, pressed: ButtonPressed) -> None:
        self._tasks.start(work, name=f"{what} for {pressed.user}")

    def _answer(self, pressed: ButtonPressed, text: str) -> None:
        """At once: Telegram has no limit for it, and the person waits."""
        work = self._call_best_effort(
            "answerCallbackQuery", callback_query_id=pressed.id, text=text[:TOAST_CHARS] or None
        )
        self._start(work, "answer", pressed)

    async def _call_best_effort(self, method: str, **arguments: Any) -> None:
        try:
            await self._api.call(method, **arguments)
        except ChatError as error:
            _log_failure(error)

    async def _call_within_limits(
        self, call: Call, pressed: ButtonPressed, work: Callable[[], Awaitable[object]]
    ) -> object:
        """Within the chat's limits, ahead of the rest. Best effort: the person can press again."""
        channel = self._records.channel(pressed.spot.chat)
        try:
            return await self._sender.within_limits(call, channel, work, "answer")
        except ChatError as error:
            _log_failure(error)
            return None


def _log_failure(error: ChatError) -> None:
    if error.code not in ("not_modified", "query_too_old", "message_not_found"):
        log.warning("%s", error)
