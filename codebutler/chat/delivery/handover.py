"""The call itself: an operation as it leaves, noted where it would be doubled, handed to the chat.

Only posts that were handed over are looked for, or told of, before they are sent again. One is noted before the call,
together with whatever else is written to the journal then: a death between the note and the call costs one look-up.

A file bears no operation, and another of the same name and size may stand in the thread: only the id tells them apart.
So the id is on disk before the file is shared. After an unknown outcome, or a death of ours, exactly that file is asked
for; what was brought to the chat and never shared is seen by nobody, and the chat discards it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from codebutler.chat.delivery.access import Authority
from codebutler.chat.delivery.outgoing import Editor, Item, again_line, has_links, said_again
from codebutler.chat.delivery.streams import Streamer
from codebutler.chat.port import ChatPort
from codebutler.domain.errors import ChatError, ChatUnreachableError, StoreError
from codebutler.domain.model import Post, React, Update, Upload
from codebutler.intake.records import Notes
from codebutler.platform.killpoints import reached

NOT_FOUND = "file_not_found"
# From here on redacting a file takes long enough to be felt by the loop.
LARGE_BYTES = 64 * 1024
SINCE = "sent"
"""Kept from the first life that notes what it hands over."""
MAYBE = "1"
DONE = "done "
"""What is noted of a post: that it may have been handed over; that it was, and its ts; else the ts of its place."""

log = logging.getLogger("codebutler.chat.delivery")


async def begin_anew(notes: Notes) -> None:
    """They are older than what was handed over since, as those of a backup are. Raises StoreError."""
    await notes.keep_note(SINCE, "")


class Uploads:
    """Without ``notes`` a file's id is known for this life only."""

    def __init__(self, chat: ChatPort, notes: Notes | None) -> None:
        self._chat = chat
        self._notes = notes

    async def send(self, item: Item, upload: Upload) -> str:
        """One attempt; returns the file's id. Raises ChatError: ChatOutcomeUnknownError if it may be shared now."""
        try:
            if not item.file_id and self._notes is not None:
                # Noted in an earlier life, or before the channel was closed to us: then it may be shared.
                item.file_id = await self._notes.note(f"upload:{item.channel}:{item.op_id}")
                item.unsure = item.unsure or bool(item.file_id)
            if item.is_repeat:
                upload = said_again(upload)
            if not item.file_id or not await self._share_again(item, upload):
                await self._begin(item, upload)
        except StoreError as error:
            raise ChatUnreachableError(f"an upload waits: {error}") from error
        return item.file_id

    async def _begin(self, item: Item, upload: Upload) -> None:
        file_id = await self._chat.upload(upload)
        reached("upload.stored")
        if self._notes is not None:
            await self._notes.keep_note(f"upload:{item.channel}:{item.op_id}", file_id)
        reached("upload.noted")
        item.file_id = file_id
        await self._share(item, upload)

    async def _share_again(self, item: Item, upload: Upload) -> bool:
        """Share what an earlier attempt has brought there, unless that did so; False if the chat has discarded it."""
        if item.unsure and item.channel in (await self._known(item.file_id) or ()):
            return True
        try:
            await self._share(item, upload)
        except ChatError as error:
            if error.code != NOT_FOUND:
                raise
            # A file can be shared once only: if it is still there it was, and the chat is slow to show where.
            return item.unsure and await self._known(item.file_id) is not None
        return True

    async def _share(self, item: Item, upload: Upload) -> None:
        await self._chat.share(item.channel, upload, item.file_id)
        reached("upload.shared")

    async def _known(self, file_id: str) -> frozenset[str] | None:
        """As in the port; where the chat cannot or will not tell, nothing is known of the file."""
        if (look_up := self._chat.capabilities.look_up) is None:
            return None
        try:
            return await look_up.shared_in(file_id)
        except ChatError as error:
            if type(error) is not ChatError:
                raise
            log.warning("cannot look for an earlier upload: %s", error.code)
            return None


class Handover:
    """``editor`` has the last word on every text. Without ``notes`` anything may have been handed over before.
    ``begin`` it before use."""

    def __init__(
        self,
        chat: ChatPort,
        streams: Streamer,
        notes: Notes | None,
        editor: Editor,
        authority: Authority,
    ) -> None:
        self._chat = chat
        self._whispers = chat.capabilities.ephemeral
        self._streams = streams
        self._uploads = Uploads(chat, notes)
        self._notes = notes
        self._editor = editor
        self._authority = authority
        self._has_all_noted = False
        self._large = asyncio.Semaphore(1)
        """To redact a file takes several times its size in memory: one at a time."""

    async def begin(self) -> None:
        """Find out whether earlier lives noted what they handed over."""
        if self._notes is not None:
            with suppress(StoreError):
                self._has_all_noted = bool(await self._notes.note(SINCE))
                await self._notes.keep_note(SINCE, "noted")

    async def recall(self, item: Item) -> str:
        """The ts of the message that an earlier attempt at a post is known to have made, else "". The item is unsure no
        more where that was never handed over, and knows its place where one is kept for it."""
        if self._notes is None:
            return ""
        try:
            noted = await self._notes.note(_name(item))
            if not noted and not self._has_all_noted:
                # The next life takes the notes for whole.
                await self._notes.keep_note(_name(item), MAYBE)
        except StoreError:
            return ""
        if noted.startswith(DONE):
            return noted.removeprefix(DONE)
        item.place = "" if noted == MAYBE else noted
        item.now(unsure=bool(noted) or not self._has_all_noted)
        return ""

    async def keep_place(self, item: Item, post: Post) -> None:
        """Say in one line that something comes that may have been said before: what comes takes that line's place,
        which may be tried any number of times. Raises ChatError; the worst that is left is such a line alone."""
        item.place = await self._chat.post(item.channel, again_line(post), item.op_id)
        item.now()
        reached("place.kept")
        await self._note(item, item.place)
        reached("place.noted")

    async def send(self, item: Item) -> str:
        """One attempt; returns the message's ts, the file's id, or "". Raises ChatError."""
        await self._prepare(item)
        reached("post.before")
        result = item.place
        operation = item.operation
        if item.is_repeat and isinstance(operation, Post):
            operation = said_again(operation)
        match operation:
            case Post() as post if item.place:
                edit = Update(target_ts=item.place, message=post.message, value=post.value)
                await self._chat.update(item.channel, edit, item.op_id)
            case Post() as post if post.only_for and self._whispers:
                result = await self._whispers.whisper(item.channel, post)
            case Post() as post:
                result = await self._streams.post(item.channel, post, item.op_id)
            case Update() as update:
                await self._chat.update(item.channel, update, item.op_id)
            case React() as react:
                await self._chat.react(item.channel, react)
            case Upload() as upload:
                result = await self._uploads.send(item, upload)
                self._streams.passed(item.channel, upload.thread_ts or "")
        reached("post.after")
        if isinstance(operation, Post) and not item.can_look:
            await self._note(item, f"{DONE}{result}")
        return result

    async def _note(self, item: Item, what: str) -> None:
        """If the disk can: else the next life sends it again, and says so."""
        if self._notes is not None:
            with suppress(StoreError):
                await self._notes.keep_note(_name(item), what)

    async def _prepare(self, item: Item) -> None:
        """As it leaves; a post is noted. What nobody would send again goes out without a note, if need be."""
        operation = item.operation
        if not item.is_clean:
            url = await self._authority.url() if has_links(operation) else ""
            if isinstance(operation, Upload) and len(operation.content) > LARGE_BYTES:
                async with self._large:
                    item.operation = await asyncio.to_thread(self._editor.edited, operation)
            else:
                item.operation = self._editor.edited(operation, url)
            item.is_clean = True
        if isinstance(operation, Post) and not item.is_noted and not item.place and self._notes is not None:
            try:
                await self._notes.keep_note(_name(item), MAYBE)
            except StoreError as error:
                if item.is_lasting:
                    raise ChatUnreachableError(f"a post waits: {error}") from error
            item.is_noted = True


def _name(item: Item) -> str:
    return f"sent:{item.channel}:{item.op_id}"
