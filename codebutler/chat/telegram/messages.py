"""Sends messages to a chat: finds their place, splits them into parts, and remembers each part's number; and messages
for one person alone, in their private chat with us, which no bot can open itself."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.layout import Section
from codebutler.chat.telegram.api import BotApi
from codebutler.chat.telegram.entities import FormattedText
from codebutler.chat.telegram.records import HOME, Buttons, MessageRecords, retryable, try_save
from codebutler.chat.telegram.render import Mentions, Rendered, render_sections
from codebutler.chat.telegram.rules import number_of
from codebutler.domain.errors import ChatError, ChatOutcomeUnknownError, ChatUnreachableError
from codebutler.domain.refs import MessageRef, PersonRef
from codebutler.intake.records import Notes

PLACEHOLDER = FormattedText("…")
"""A placeholder for a part: it can be edited any number of times, while a second post would show."""
CONTINUED_TOPIC = "Continued"
TOPIC_NOTICE = "I answer in a separate topic: {link}"

Keyboard = Mapping[str, Any] | None
SaveNumbers = Callable[[list[int]], Awaitable[None]]
HOME_NOTE = "telegram.home."

log = logging.getLogger("codebutler.chat.telegram")


class Destination(Struct, frozen=True):
    """Where to post. ``root``: the start of the conversation, 0 if it starts with this; ``topic``: the
    topic's number, if it is one."""

    chat: int
    root: int = 0
    topic: int = 0
    silent: bool = False

    def arguments(self) -> dict[str, Any]:
        """As fields of the Bot API."""
        where: dict[str, Any] = {"chat_id": self.chat}
        if self.topic:
            where["message_thread_id"] = self.topic
        elif self.root:
            where["reply_parameters"] = {"message_id": self.root, "allow_sending_without_reply": True}
        if self.silent:
            where["disable_notification"] = True
        return where


class MessageWriter:
    """Everything raises ChatError as the port."""

    def __init__(self, api: BotApi, records: MessageRecords) -> None:
        self._api = api
        self._records = records
        self._opening = asyncio.Lock()

    async def place(self, chat: int, root: int, *, silent: bool = False) -> Destination:
        """The place of the conversation that starts with ``root``. Raises StoreError."""
        topic = (await self._records.get(chat, root)).topic if root else 0
        return Destination(chat, root, topic, silent)

    async def send(self, place: Destination, text: FormattedText, keyboard: Keyboard = None) -> int:
        """A new message; returns its number."""
        sent = await self._send_in_topic(
            place, lambda at: self._send_text("sendMessage", text, keyboard, at.arguments())
        )
        return _number(sent)

    async def send_file(self, place: Destination, filename: str, content: bytes, caption: str) -> int:
        """A new message with a file; returns its number."""

        async def send(at: Destination) -> Any:
            arguments = at.arguments().items()
            where = {
                name: value if isinstance(value, str) else json.dumps(value) for name, value in arguments
            }
            return await self._api.send_file(
                "sendDocument", "document", filename, content, caption=caption or None, **where
            )

        return _number(await self._send_in_topic(place, send))

    async def fill(
        self,
        place: Destination,
        numbers: list[int],
        parts: Sequence[FormattedText],
        keyboard: Keyboard,
        keep: SaveNumbers,
        *,
        already_shown: int = 0,
    ) -> None:
        """Make the messages ``numbers`` show ``parts``, of which ``already_shown`` already do; ``keyboard`` below the
        last. If the number of messages changes, ``numbers`` is changed and ``keep`` is called."""
        for at, part in enumerate(parts):
            if at >= len(numbers):
                numbers.append(
                    await self.send(
                        Destination(place.chat, place.root, place.topic, silent=True), PLACEHOLDER
                    )
                )
                await keep(numbers)
            if at >= already_shown:
                below = keyboard if at == len(parts) - 1 else None
                await self._edit(place.chat, numbers[at], part, below)
        spare = numbers[len(parts) :]
        if spare:
            del numbers[len(parts) :]
            await keep(numbers)
        await self.delete_all(place.chat, spare)

    async def delete_all(self, chat: int, numbers: Sequence[int]) -> None:
        """Delete these messages, as far as possible."""
        for number in numbers:
            await self._delete(chat, number)

    async def pin(self, chat: int, number: int) -> None:
        """Pin a message without notifying anybody, if possible."""
        try:
            await self._api.call("pinChatMessage", chat_id=chat, message_id=number, disable_notification=True)
        except ChatError as error:
            log.debug("%s", error)

    async def _edit(self, chat: int, number: int, text: FormattedText, keyboard: Keyboard) -> None:
        try:
            await self._send_text("editMessageText", text, keyboard, {"chat_id": chat, "message_id": number})
        except ChatError as error:
            if error.code != "not_modified":
                raise

    async def _send_text(
        self, method: str, text: FormattedText, keyboard: Keyboard, where: Mapping[str, Any]
    ) -> Any:
        arguments = {
            **where,
            "text": text.text,
            "link_preview_options": {"is_disabled": True},
            "reply_markup": keyboard,
        }
        try:
            return await self._api.call(method, entities=text.as_json() or None, **arguments)
        except ChatError as error:
            if error.code != "invalid_entities" or not text.entities:
                raise
            # Refused, so nothing was posted: better plain than not at all.
            log.warning("%s; shown without formatting", error)
        return await self._api.call(method, **arguments)

    async def _send_in_topic(self, place: Destination, send: Callable[[Destination], Awaitable[Any]]) -> Any:
        """Post in its topic; if that is gone, in a new one that continues it, and never among other
        conversations."""
        place = await self._with_topic(place)
        try:
            sent = await send(place)
            topic = sent.get("message_thread_id") if isinstance(sent, Mapping) else place.topic
            if not place.topic or topic == place.topic:
                return sent
            # Telegram has posted messages for deleted topics in the chat itself.
            await self._delete(place.chat, _number(sent))
        except ChatError as error:
            if error.code != "thread_not_found" or not place.topic:
                raise
        return await send(await self._create_topic(place))

    async def _with_topic(self, place: Destination) -> Destination:
        """The conversation's current place: one that started in a forum's General gets a topic with the first
        answer."""
        if place.topic or not place.root:
            return place
        async with self._opening:
            with retryable():
                known = await self._records.get(place.chat, place.root)
            if known.topic or not known.title:
                return Destination(place.chat, place.root, known.topic, place.silent)
            try:
                topic_place = await self._create_topic(place, known.title)
            except ChatOutcomeUnknownError as error:
                # Nothing was posted yet: at worst an empty topic remains.
                raise ChatUnreachableError(str(error), "unreachable") from None
            except ChatError as error:
                if error.code != "no_topic":
                    raise
                log.info("answers stay in General: %s", error)
                await try_save(
                    self._records.update(place.chat, place.root, lambda known: replace(known, title=""))
                )
                return place
        await self._post_topic_link(topic_place)
        return topic_place

    async def _post_topic_link(self, topic_place: Destination) -> None:
        link = f"https://t.me/c/{str(topic_place.chat).removeprefix('-100')}/{topic_place.topic}"
        where = Destination(topic_place.chat, topic_place.root, silent=True).arguments()
        try:
            await self._send_text("sendMessage", FormattedText(TOPIC_NOTICE.format(link=link)), None, where)
        except ChatError as error:
            log.debug("%s", error)

    async def _create_topic(self, place: Destination, name: str = CONTINUED_TOPIC) -> Destination:
        try:
            created = await self._api.call("createForumTopic", chat_id=place.chat, name=name)
        except ChatError as error:
            if type(error) is not ChatError:
                raise
            # It waits until we are allowed: conversations are never mixed.
            raise ChatError(
                f"the topic is gone, and a new one cannot be created: {error}", "no_topic"
            ) from None
        topic = created.get("message_thread_id") if isinstance(created, Mapping) else None
        if not isinstance(topic, int):
            raise ChatError("Telegram does not say which topic it created", "invalid_answer")
        root = self._records.ref(place.chat, place.root)
        await try_save(
            self._records.update(place.chat, place.root, lambda known: replace(known, topic=topic))
        )
        await try_save(
            self._records.update(place.chat, topic, lambda known: replace(known, topic=topic, thread=root))
        )
        return Destination(place.chat, place.root, topic, place.silent)

    async def _delete(self, chat: int, number: int) -> None:
        try:
            await self._api.call("deleteMessage", chat_id=chat, message_id=number)
        except ChatError as error:
            log.debug("%s", error)


def _number(sent: object) -> int:
    number = sent.get("message_id") if isinstance(sent, Mapping) else None
    if not isinstance(number, int):
        raise ChatError("Telegram does not say which message it is", "invalid_answer")
    return number


class PrivateMessages:
    """A HomePage: one message per person, pinned and edited; and messages for them alone."""

    def __init__(
        self,
        messages: MessageWriter,
        records: MessageRecords,
        buttons: Buttons,
        notes: Notes,
        clean: Callable[[Rendered], Rendered],
    ) -> None:
        self._messages = messages
        self._records = records
        self._buttons = buttons
        self._notes = notes
        self._clean = clean
        self._homes: dict[PersonRef, tuple[int, ...]] = {}

    async def publish_home(self, user: PersonRef, parts: Sequence[Section]) -> None:
        """Edit the message that stands for it, or send and pin the first."""
        chat = number_of(user)
        rendered = self._clean(render_sections(parts, people=Mentions(name_of=self._records.name_of)))
        with retryable():
            numbers = list(await self._home_numbers(user))
            keyboard = await self._buttons.keyboard(chat, HOME, rendered.button_rows)
        place = Destination(chat, silent=True)
        keep = partial(self._save_home, user)
        try:
            await self._messages.fill(place, numbers, rendered.parts, keyboard, keep)
        except ChatError as error:
            if error.code != "message_not_found":
                raise
            # Somebody deleted it.
            numbers = []
            await self._messages.fill(place, numbers, rendered.parts, keyboard, keep)
        await try_save(self._buttons.move_to(chat, HOME, MessageRef(HOME), numbers[-1]))

    async def reopen(self, user: PersonRef) -> None:
        """Somebody asks for it: the next one is posted below everything else. Raises StoreError."""
        numbers = await self._home_numbers(user)
        await self._save_home(user, [])
        await self._messages.delete_all(number_of(user), numbers)

    async def send(self, user: PersonRef, rendered: Rendered) -> int:
        """Send one person a message; returns the first message's number. Raises ChatError, not_in_channel if
        they have never opened the chat."""
        numbers: list[int] = []
        place = Destination(number_of(user))
        numbers.append(await self._messages.send(place, rendered.parts[0]))
        await self._messages.fill(place, numbers, rendered.parts, None, _ignore_numbers, already_shown=1)
        return numbers[0]

    async def _home_numbers(self, user: PersonRef) -> tuple[int, ...]:
        if user not in self._homes:
            note = await self._notes.note(HOME_NOTE + user)
            self._homes[user] = tuple(int(each) for each in note.split() if each.isdecimal())
        return self._homes[user]

    async def _save_home(self, user: PersonRef, numbers: list[int]) -> None:
        before, self._homes[user] = self._homes.get(user, ()), tuple(numbers)
        await try_save(self._notes.keep_note(HOME_NOTE + user, " ".join(map(str, numbers))))
        if numbers and not before:
            await self._messages.pin(number_of(user), numbers[0])
        for number in numbers:
            await try_save(
                self._records.update(number_of(user), number, lambda known: replace(known, is_ours=True))
            )


async def _ignore_numbers(_numbers: list[int]) -> None:
    """Does nothing: a message for one person is never edited."""
