"""Telegram's messages as our events: their conversation, and their files.

A conversation is a topic; without topics, a message and everything that replies to it or to one of its
replies. Telegram only tells what a message itself replies to, so the start of each chain is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec.structs import replace

from codebutler.chat.layout import REASON_CHARS, Placed, placed
from codebutler.chat.telegram.records import ButtonMeaning, KnownMessage, MessageRecords, kept
from codebutler.chat.telegram.rules import is_private
from codebutler.chat.telegram.updates import Pressed, Spot, StartCommand, WrittenUpdate
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

    async def thread(self, spot: Spot) -> MessageRef | None:
        """The ref of a message's conversation; None if it starts one."""
        if spot.topic:
            known = await self._records.known(spot.chat, spot.topic)
            if not known.topic:
                await self._records.keep(
                    spot.chat, spot.topic, lambda before: replace(before, topic=spot.topic)
                )
            return known.thread or self._records.ref(spot.chat, spot.topic)
        own = await self._records.known(spot.chat, spot.message)
        if own.thread or not spot.reply_to:
            return own.thread or None
        answered = await self._records.known(spot.chat, spot.reply_to)
        return answered.thread or self._records.ref(spot.chat, spot.reply_to)

    async def posted(self, album: Sequence[WrittenUpdate]) -> MessagePosted:
        """A message, or the several messages of an album."""
        first, *others = album
        spot = first.spot
        self._records.met(first.user, first.name)
        ref = self._records.ref(spot.chat, spot.message)
        key = spot.chat, first.album
        begun = self._albums.get(key) if first.album else None
        # Delivered again, because it could not be stored, it still starts a conversation.
        thread = await self.thread(spot) or (begun if begun != ref else None)
        files = tuple(file for said in album for file in _named(said, self._records))
        for said in album:
            self.remember(said)
            of = thread or (NOWHERE if said is first else ref)
            await self._keep(said, NOWHERE if spot.topic else of)
        if first.album:
            self._albums.setdefault(key, thread or ref)
        return MessagePosted(
            channel=self._records.channel(spot.chat),
            ref=ref,
            sent_at=first.at,
            order=self._records.ref(spot.chat, (others or [first])[-1].spot.message),
            is_direct=spot.is_direct,
            user=first.user,
            text="\n".join(said.text for said in album if said.text),
            thread=thread,
            files=files,
            mentioned=any(said.mentioned for said in album),
        )

    async def taken(self, said: WrittenUpdate, event: MessagePosted) -> None:
        """Work on it starts: a message in a forum's General gets a topic for its answer."""
        if said.spot.in_general and event.thread is None and not event.text.startswith("!"):
            title = " ".join(event.text.split())[:TITLE_CHARS] or "Files"
            place = said.spot.chat, said.spot.message
            await kept(self._records.keep(*place, lambda before: replace(before, title=title)))

    async def edited(self, said: WrittenUpdate) -> MessageEdited | None:
        """An edit; None if the text is unchanged."""
        spot = said.spot
        if self._texts.get((spot.chat, spot.message)) == _digest(said.text):
            return None
        return MessageEdited(
            channel=self._records.channel(spot.chat),
            ref=self._records.ref(spot.chat, spot.message),
            sent_at=said.edited_at,
            order=self._records.order(spot.chat),
            is_direct=spot.is_direct,
            user=said.user,
            text=said.text,
            # Whole seconds do not tell two edits apart.
            edit=f"{said.edited_at:.0f}.{_digest(said.text)}",
            thread=await self.thread(spot),
        )

    async def reason(self, said: WrittenUpdate) -> ButtonClicked | None:
        """The press of a button that asked for a reason, with this reply's words; None if it is no such
        reply."""
        spot = said.spot
        if not spot.reply_to or not said.text.strip():
            return None
        asked = (await self._records.known(spot.chat, spot.reply_to)).asked
        if asked is None:
            return None
        return ButtonClicked(
            channel=asked.channel,
            is_direct=is_private(asked.channel),
            user=said.user,
            message=asked.card,
            action_id=DENY_ACTION,
            value=asked.value,
            press=f"reason.{spot.message}",
            thread=asked.thread or None,
            user_name=said.name,
            words=said.text.strip()[:REASON_CHARS],
        )

    def greeted(self, started: StartCommand) -> MessagePosted:
        """People who open the private chat get help."""
        self._records.met(started.user, started.name)
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

    async def place(self, pressed: Pressed, button: ButtonMeaning) -> Placed:
        """The message of a press: the one with the button or, on a home, the one that it stands for. Raises
        PayloadError."""
        spot = pressed.spot
        if button.is_home and button.action != PICK_ACTION:
            return placed(button.value)
        number = button.message or spot.message
        known = await self._records.known(spot.chat, number)
        return Placed(
            channel=self._records.channel(spot.chat),
            message=self._records.ref(spot.chat, known.part_of or number),
            value=button.value,
            thread=await self.thread(spot),
        )

    def remember(self, said: WrittenUpdate) -> None:
        """Store the message's text: an edit that leaves it unchanged is ignored."""
        place = said.spot.chat, said.spot.message
        self._texts[place] = _digest(said.text)

    async def _keep(self, said: WrittenUpdate, thread: MessageRef) -> None:
        def change(before: KnownMessage) -> KnownMessage:
            return replace(before, thread=thread, files=said.files)

        if thread or said.files:
            await self._records.keep(said.spot.chat, said.spot.message, change)


def _named(said: WrittenUpdate, records: MessageRecords) -> list[File]:
    """The files under names of ours, the message and a number, which are safe in a path. Telegram's own IDs
    stay with us."""
    ref = records.ref(said.spot.chat, said.spot.message)
    return [replace(file, id=f"{ref}-{at}") for at, file in enumerate(said.files)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
