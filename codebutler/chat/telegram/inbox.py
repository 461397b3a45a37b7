"""Telegram's messages as our events: their conversation, and their files.

A conversation is a topic; without topics, a message and everything that replies to it or to one of its
replies. Telegram only tells what a message itself replies to, so the start of each chain is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from codebutler.chat.layout import REASON_CHARS, Placed, placed
from codebutler.chat.telegram.records import ButtonMeaning, KnownMessage, MessageRecords, try_save
from codebutler.chat.telegram.rules import is_private
from codebutler.chat.telegram.updates import ButtonPressed, MessageLocation, StartCommand, WrittenUpdate
from codebutler.domain.message import DENY_ACTION, PICK_ACTION
from codebutler.domain.model import ButtonClicked, File, MessageEdited, MessagePosted
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.platform.tasks import BoundedDict

REMEMBERED = 5000
TITLE_CHARS = 60


class IncomingEvents:
    """All of it raises StoreError: data that an event needs later is on disk before the event is."""

    def __init__(self, records: MessageRecords) -> None:
        self._records = records
        self._texts: BoundedDict[tuple[int, int], str] = BoundedDict(REMEMBERED)
        self._albums: BoundedDict[tuple[int, str], MessageRef] = BoundedDict(REMEMBERED)

    async def thread(self, spot: MessageLocation) -> MessageRef | None:
        """The ref of a message's conversation; None if it starts one."""
        if spot.topic:
            known = await self._records.get(spot.chat, spot.topic)
            if not known.topic:
                await self._records.update(
                    spot.chat, spot.topic, lambda before: replace(before, topic=spot.topic)
                )
            return known.thread or self._records.ref(spot.chat, spot.topic)
        own = await self._records.get(spot.chat, spot.message)
        if own.thread or not spot.reply_to:
            return own.thread or None
        replied_to = await self._records.get(spot.chat, spot.reply_to)
        return replied_to.thread or self._records.ref(spot.chat, spot.reply_to)

    async def message_event(self, album: Sequence[WrittenUpdate]) -> MessagePosted:
        """A message, or the several messages of an album."""
        first, *others = album
        spot = first.spot
        self._records.remember_name(first.user, first.name)
        ref = self._records.ref(spot.chat, spot.message)
        key = spot.chat, first.album
        album_ref = self._albums.get(key) if first.album else None
        # Delivered again, because it could not be stored, it still starts a conversation.
        thread = await self.thread(spot) or (album_ref if album_ref != ref else None)
        files = tuple(file for message in album for file in _files_with_own_ids(message, self._records))
        for message in album:
            self.remember_text(message)
            message_thread = thread or (NOWHERE if message is first else ref)
            await self._keep(message, NOWHERE if spot.topic else message_thread)
        if first.album:
            self._albums.setdefault(key, thread or ref)
        return MessagePosted(
            channel=self._records.channel(spot.chat),
            ref=ref,
            sent_at=first.at,
            order=self._records.ref(spot.chat, (others or [first])[-1].spot.message),
            is_direct=spot.is_direct,
            user=first.user,
            text="\n".join(message.text for message in album if message.text),
            thread=thread,
            files=files,
            mentioned=any(message.mentioned for message in album),
        )

    async def save_topic_title(self, message: WrittenUpdate, event: MessagePosted) -> None:
        """Work on it starts: a message in a forum's General gets a topic for its answer."""
        if message.spot.in_general and event.thread is None and not event.text.startswith("!"):
            title = " ".join(event.text.split())[:TITLE_CHARS] or "Files"
            place = message.spot.chat, message.spot.message
            await try_save(self._records.update(*place, lambda before: replace(before, title=title)))

    async def edit_event(self, message: WrittenUpdate) -> MessageEdited | None:
        """An edit; None if the text is unchanged."""
        spot = message.spot
        if self._texts.get((spot.chat, spot.message)) == _digest(message.text):
            return None
        return MessageEdited(
            channel=self._records.channel(spot.chat),
            ref=self._records.ref(spot.chat, spot.message),
            sent_at=message.edited_at,
            order=self._records.order(spot.chat),
            is_direct=spot.is_direct,
            user=message.user,
            text=message.text,
            # Whole seconds do not tell two edits apart.
            edit=f"{message.edited_at:.0f}.{_digest(message.text)}",
            thread=await self.thread(spot),
        )

    async def reason_event(self, message: WrittenUpdate) -> ButtonClicked | None:
        """The press of a button that asked for a reason, with this reply's words; None if it is no such
        reply."""
        spot = message.spot
        if not spot.reply_to or not message.text.strip():
            return None
        prompt = (await self._records.get(spot.chat, spot.reply_to)).asked
        if prompt is None:
            return None
        return ButtonClicked(
            channel=prompt.channel,
            is_direct=is_private(prompt.channel),
            user=message.user,
            message=prompt.card,
            action_id=DENY_ACTION,
            value=prompt.value,
            press=f"reason.{spot.message}",
            thread=prompt.thread or None,
            user_name=message.name,
            words=message.text.strip()[:REASON_CHARS],
        )

    def start_event(self, started: StartCommand) -> MessagePosted:
        """People who open the private chat get help."""
        self._records.remember_name(started.user, started.name)
        ref = self._records.ref(started.spot.chat, started.spot.message)
        return MessagePosted(
            channel=self._records.channel(started.spot.chat),
            ref=ref,
            sent_at=started.at,
            order=ref,
            is_direct=True,
            user=started.user,
            text="!help",
            mentioned=True,
        )

    async def place_of_press(self, pressed: ButtonPressed, button: ButtonMeaning) -> Placed:
        """The message of a press: the one with the button or, on a home, the one that it stands for. Raises
        PayloadError."""
        spot = pressed.spot
        if button.is_home and button.action != PICK_ACTION:
            return placed(button.value)
        number = button.message or spot.message
        known = await self._records.get(spot.chat, number)
        return Placed(
            channel=self._records.channel(spot.chat),
            message=self._records.ref(spot.chat, known.part_of or number),
            value=button.value,
            thread=await self.thread(spot),
        )

    def remember_text(self, message: WrittenUpdate) -> None:
        """Store the message's text: an edit that leaves it unchanged is ignored."""
        place = message.spot.chat, message.spot.message
        self._texts[place] = _digest(message.text)

    async def _keep(self, message: WrittenUpdate, thread: MessageRef) -> None:
        def change(before: KnownMessage) -> KnownMessage:
            return replace(before, thread=thread, files=message.files)

        if thread or message.files:
            await self._records.update(message.spot.chat, message.spot.message, change)


def _files_with_own_ids(message: WrittenUpdate, records: MessageRecords) -> list[File]:
    """The files under names of ours, the message and a number, which are safe in a path. Telegram's own IDs
    stay with us."""
    ref = records.ref(message.spot.chat, message.spot.message)
    return [replace(file, id=f"{ref}-{at}") for at, file in enumerate(message.files)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
