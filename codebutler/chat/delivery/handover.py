"""One pending operation, and its call: records an operation that must not be doubled, then hands it to the chat.

Only posts that were handed over are looked up, or announced, before they are sent again. Each is recorded before the
call, together with other writes to the journal: a crash between record and call costs one look-up.

A file carries no operation ID, and another of the same name and size may be in the thread: only its own ID tells them
apart. So that is on disk before the file is shared. After an unknown outcome, or a crash of ours, exactly that file is
looked up; one that was uploaded and never shared is seen by nobody, and the chat discards it.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Literal

from codebutler.chat.delivery.access import Authority
from codebutler.chat.delivery.outgoing import Editor, marked_as_repeat, placeholder, route
from codebutler.chat.delivery.planner import WaitingCall
from codebutler.chat.delivery.streams import Streamer
from codebutler.chat.port import ChatPort
from codebutler.domain.errors import ChatError, ChatUnreachableError, StoreError
from codebutler.domain.model import Operation, Post, React, Update, Upload
from codebutler.domain.refs import NOWHERE, MessageRef
from codebutler.intake.records import Notes
from codebutler.platform.kill_points import reached
from codebutler.text.markup import MESSAGE, PAGES

NOT_FOUND = "file_not_found"
# Redacting a file of this size would hold up the loop.
LARGE_BYTES = 64 * 1024
SINCE = "sent"
"""Kept since the first version that records posts."""
MAYBE = "1"
DONE = "done "
"""The record of a post: it may have been handed over; it was, with its ref; else the ref of its place."""

log = logging.getLogger("codebutler.chat.delivery")


class Item(WaitingCall, kw_only=True, eq=False):
    """A pending operation. ``submitted`` is as it came, ``operation`` as it is sent, once ``is_clean``; ``unsure``:
    it may have been sent before; ``can_look``: history can tell. ``step``: the purpose of its call. ``file_id``: of
    an upload, once there is one; ``place``: the ref of the placeholder message, which becomes the post. ``note``: the
    name of its record in the journal. ``is_outdated``: nobody needs it any more."""

    op_id: str
    note: str
    submitted: Operation
    operation: Operation
    result: asyncio.Future[MessageRef]
    unsure: bool
    can_look: bool
    is_outdated: bool
    step: Literal["send", "look", "keep a place"] = "send"
    failures: int = 0
    is_clean: bool = False
    is_simplified: bool = False
    is_noted: bool = False
    file_id: str = ""
    place: MessageRef = NOWHERE

    def now(self, operation: Operation | None = None, *, unsure: bool | None = None) -> None:
        """Update its state, and with it the call it waits for.

        A post that may have been sent before is looked up, or gets a placeholder. Repeating an edit or a mark does no
        harm; a file is known by its ID; a message for one person cannot be looked up.
        """
        self.operation = now = self.operation if operation is None else operation
        self.unsure = self.unsure if unsure is None else unsure
        self.step, self.call = "send", "update" if self.place else route(now)[0]
        if self.unsure and isinstance(now, Post) and not now.only_for and not self.place:
            if self.can_look:
                self.step, self.call = "look", "replies" if now.thread else "history"
            else:
                self.step = "keep a place"

    @property
    def cannot_tell(self) -> bool:
        """Whether nobody can tell if it was sent before: then, while it is ``unsure``, it must say so."""
        return not self.can_look or (isinstance(self.operation, Post) and bool(self.operation.only_for))


async def begin_anew(notes: Notes) -> None:
    """The records are older than the posts since, as in a backup. Raises StoreError."""
    await notes.keep_note(SINCE, "")


class Uploads:
    """Uploads a file, and shares it once."""

    def __init__(self, chat: ChatPort, notes: Notes) -> None:
        self._chat = chat
        self._notes = notes

    async def send(self, item: Item, upload: Upload) -> str:
        """One attempt; returns the file's ID. Raises ChatError: ChatOutcomeUnknownError if it may be shared
        now."""
        try:
            if not item.file_id:
                # Recorded by an earlier process, or before the channel was closed to us: it may be shared.
                item.file_id = await self._notes.note(f"upload:{item.channel}:{item.op_id}")
                item.unsure = item.unsure or bool(item.file_id)
            if item.unsure and item.cannot_tell:
                upload = marked_as_repeat(upload)
            if not item.file_id or not await self._share_again(item, upload):
                await self._begin(item, upload)
        except StoreError as error:
            raise ChatUnreachableError(f"an upload is waiting: {error}") from error
        return item.file_id

    async def _begin(self, item: Item, upload: Upload) -> None:
        file_id = await self._chat.upload(upload)
        reached("upload.stored")
        await self._notes.keep_note(f"upload:{item.channel}:{item.op_id}", file_id)
        reached("upload.noted")
        item.file_id = file_id
        await self._share(item, upload)

    async def _share_again(self, item: Item, upload: Upload) -> bool:
        """Share the file that an earlier attempt uploaded, unless it is shared; False if the chat has
        discarded it."""
        if item.unsure and item.channel in (await self._known(item.file_id) or ()):
            return True
        try:
            await self._share(item, upload)
        except ChatError as error:
            if error.code != NOT_FOUND:
                raise
            # A file can be shared only once: if it still exists it was, and the chat is slow to show where.
            return item.unsure and await self._known(item.file_id) is not None
        return True

    async def _share(self, item: Item, upload: Upload) -> None:
        await self._chat.share(item.channel, upload, item.file_id)
        reached("upload.shared")

    async def _known(self, file_id: str) -> frozenset[str] | None:
        """As in the port; if the chat cannot or will not tell, nothing is known about the file."""
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
    """Hands operations to the chat. ``editor`` sees every text last. Call ``begin`` before use."""

    def __init__(
        self,
        chat: ChatPort,
        streams: Streamer,
        notes: Notes,
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
        """Redacting a file takes several times its size in memory: one at a time."""

    async def begin(self) -> None:
        """Find out whether earlier processes recorded their posts."""
        with suppress(StoreError):
            self._has_all_noted = bool(await self._notes.note(SINCE))
            await self._notes.keep_note(SINCE, "noted")

    async def recall(self, item: Item) -> MessageRef:
        """The ref of the message that an earlier attempt is known to have made, else "". An item that was
        never handed over is no longer unsure, and one with a placeholder knows it."""
        try:
            noted = await self._notes.note(item.note)
            if not noted and not self._has_all_noted:
                # The next process would take the records as complete.
                await self._notes.keep_note(item.note, MAYBE)
        except StoreError:
            return NOWHERE
        if noted.startswith(DONE):
            return MessageRef(noted.removeprefix(DONE))
        item.place = NOWHERE if noted == MAYBE else MessageRef(noted)
        item.now(unsure=bool(noted) or not self._has_all_noted)
        return NOWHERE

    async def keep_place(self, item: Item, post: Post) -> None:
        """Post one line saying that a repetition may follow: that then replaces the line, which may be
        retried any number of times. Raises ChatError; at worst the line remains alone."""
        item.place = await self._chat.post(item.channel, placeholder(post), item.op_id)
        item.now()
        reached("place.kept")
        await self._note(item, item.place)
        reached("place.noted")

    async def send(self, item: Item) -> MessageRef:
        """One attempt; returns the message's ref, the file's ID, or "". Raises ChatError."""
        await self._prepare(item)
        reached("post.before")
        result = item.place
        operation = item.operation
        if item.unsure and item.cannot_tell and isinstance(operation, Post):
            operation = marked_as_repeat(operation)
        match operation:
            case Post() as post if item.place:
                edit = Update(target=item.place, message=post.message, value=post.value)
                await self._chat.update(item.channel, edit, item.op_id)
            case Post() as post if post.only_for and self._whispers:
                result = await self._whispers.whisper(item.channel, post)
            case Post() as post if stream := self._streams.open.get((item.channel, post.thread or NOWHERE)):
                result = await self._streams.post(stream, post, item.op_id)
            case Post() as post:
                result = await self._chat.post(item.channel, post, item.op_id)
            case Update() as update:
                await self._chat.update(item.channel, update, item.op_id)
            case React() as react:
                await self._chat.react(item.channel, react)
            case Upload() as upload:
                result = MessageRef(await self._uploads.send(item, upload))
                self._streams.passed(item.channel, upload.thread or NOWHERE)
        reached("post.after")
        if isinstance(operation, Post) and not item.can_look:
            await self._note(item, f"{DONE}{result}")
        return result

    async def _note(self, item: Item, what: str) -> None:
        """Record it if the disk allows; otherwise the next process sends it again and says so."""
        with suppress(StoreError):
            await self._notes.keep_note(item.note, what)

    async def _prepare(self, item: Item) -> None:
        """In its final form; a post is recorded. An operation that nobody would repeat may go out unrecorded."""
        operation = item.operation
        if not item.is_clean:
            # Whether links to messages and to the dashboard work depends on the workspace.
            text = str(operation.message) if isinstance(operation, Post | Update) else ""
            url = await self._authority.url() if MESSAGE in text or PAGES in text else ""
            if isinstance(operation, Upload) and len(operation.content) > LARGE_BYTES:
                async with self._large:
                    item.operation = await asyncio.to_thread(self._editor.edited, operation)
            else:
                item.operation = self._editor.edited(operation, url)
            item.is_clean = True
        if isinstance(operation, Post) and not item.is_noted and not item.place:
            try:
                await self._notes.keep_note(item.note, MAYBE)
            except StoreError as error:
                if item.is_lasting:
                    raise ChatUnreachableError(f"a post is waiting: {error}") from error
            item.is_noted = True
