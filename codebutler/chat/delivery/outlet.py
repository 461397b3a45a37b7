"""The call itself: an operation without secrets, noted where it would be doubled, handed to the chat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from codebutler.chat.delivery.handed import MAYBE, Handed
from codebutler.chat.delivery.items import Item
from codebutler.chat.delivery.outgoing import again_line, redacted, said_again
from codebutler.chat.delivery.streams import Streamer
from codebutler.chat.delivery.uploads import Uploads
from codebutler.chat.port import ChatPort
from codebutler.errors import ChatUnreachableError, StoreError
from codebutler.model import Post, React, Update, Upload
from codebutler.process.killpoints import reached

# From here on redacting a file takes long enough to be felt by the loop.
LARGE_BYTES = 64 * 1024


class Outlet:
    """``redact`` sees every text last."""

    def __init__(
        self,
        chat: ChatPort,
        streams: Streamer,
        uploads: Uploads,
        handed: Handed,
        redact: Callable[[str], str],
    ) -> None:
        self._chat = chat
        self._streams = streams
        self._uploads = uploads
        self._handed = handed
        self._redact = redact
        self._whispers = chat.capabilities.ephemeral
        self._large = asyncio.Semaphore(1)
        """To redact a file takes several times its size in memory: one at a time."""

    async def may_have_sent(self, item: Item) -> bool:
        """Whether an earlier attempt at a post may have reached the chat."""
        trace = await self._handed.trace(item.channel, item.op_id)
        item.place = "" if trace == MAYBE else trace
        item.now()
        return bool(trace)

    async def keep_place(self, item: Item) -> None:
        """Say in one line that something comes that may have been said before: what comes takes that line's place,
        which may be tried any number of times. Raises ChatError; the worst that is left is such a line alone.
        """
        if isinstance(item.operation, Post):
            item.place = await self._chat.post(item.channel, again_line(item.operation), item.op_id)
            item.now()
            reached("place.kept")
            with suppress(StoreError):  # then the next life keeps another one
                await self._handed.note(item.channel, item.op_id, item.place)
            reached("place.noted")

    async def send(self, item: Item) -> str:
        """One attempt; returns the message's ts, the file's id, or "". Raises ChatError."""
        if not item.is_clean:
            item.operation = await self._clean(item)
            item.is_clean = True
        if isinstance(item.operation, Post) and not item.is_noted and not item.place:
            await self._note(item)
        reached("post.before")
        result = await self._call(item)
        reached("post.after")
        return result

    async def _clean(self, item: Item) -> Post | Update | React | Upload:
        if isinstance(item.operation, Upload) and len(item.operation.content) > LARGE_BYTES:
            async with self._large:
                return await asyncio.to_thread(redacted, item.operation, self._redact)
        return redacted(item.operation, self._redact)

    async def _note(self, item: Item) -> None:
        """What nobody would send again goes out without a note, if need be."""
        try:
            await self._handed.note(item.channel, item.op_id)
        except StoreError as error:
            if item.waiting.is_lasting:
                raise ChatUnreachableError(f"a post waits: {error}") from error
        item.is_noted = True

    async def _call(self, item: Item) -> str:
        operation = item.operation
        match operation:
            case Post():
                return await self._say(item, said_again(operation) if item.is_repeat else operation)
            case Update():
                await self._chat.update(item.channel, operation, item.op_id)
            case React():
                await self._chat.react(item.channel, operation)
            case Upload():
                file_id = await self._uploads.send(item, operation)
                self._streams.passed(item.channel, operation.thread_ts or "")
                return file_id
        return ""

    async def _say(self, item: Item, post: Post) -> str:
        if item.place:
            edit = Update(target_ts=item.place, message=post.message, value=post.value)
            await self._chat.update(item.channel, edit, item.op_id)
            return item.place
        if post.only_for and self._whispers is not None:
            return await self._whispers.whisper(item.channel, post)
        return await self._streams.post(item.channel, post, item.op_id)
