"""Deletes streamed messages that no answer replaced: ours, and those of an earlier process.

A message of ours carries its operation ID, or it is a file; any other is a stream's. So the thread and the
time are recorded before anything is streamed there: after a crash the next process finds the leftovers.
"""

from __future__ import annotations

import logging

import msgspec

from codebutler.chat.delivery.access import Reader
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.port import Streams
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
    StoreError,
)
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef
from codebutler.intake.records import Notes

NOTE = "streams"
SKEW_S = 60.0
"""How far our clock may be ahead of the chat's."""
SETTLED_S = 2.0
"""After this long nothing of an earlier process is under way inside the chat any more."""
AGAIN_S = 5.0
AGAIN_CAP_S = 300.0

Thread = tuple[ConversationRef, MessageRef]
"""A conversation, and the ref of the first message of a thread there."""

log = logging.getLogger("codebutler.chat.delivery")


class Leftovers:
    """Knows which threads may hold leftovers, and deletes them. ``load`` it before use. ``chat`` is the streaming
    port."""

    def __init__(
        self,
        chat: Streams,
        loop: Loop,
        reader: Reader,
        notes: Notes,
        clock: Clock,
    ) -> None:
        self.chat = chat
        self._loop = loop
        self._reader = reader
        self._notes = notes
        self._clock = clock
        self._noted: dict[Thread, float] = {}
        self._dirty: set[Thread] = set()

    async def load(self) -> tuple[Thread, ...]:
        """The threads in which an earlier process may have left something: ``sweep`` them. Raises StoreError."""
        try:
            noted = msgspec.json.decode(
                await self._notes.note(NOTE) or "[]",
                type=list[tuple[ConversationRef, MessageRef, float]],
                strict=False,
            )
        except msgspec.DecodeError as error:
            raise StoreError(f"cannot read the note of streamed messages: {error}") from error
        self._noted = {(channel, thread): since_s for channel, thread, since_s in noted}
        self._dirty.update(self._noted)
        return tuple(self._noted)

    def soil(self, thread: Thread) -> None:
        """Record in memory that something may have to be deleted there."""
        self._dirty.add(thread)

    def is_dirty(self, thread: Thread) -> bool:
        """Whether something still has to be deleted there: nothing new may be streamed until then."""
        return thread in self._dirty

    async def expect(self, thread: Thread) -> None:
        """Something will be streamed there. Returns once that is on disk. Raises StoreError."""
        if thread not in self._noted:
            self._noted[thread] = self._clock.now().timestamp() - SKEW_S
            await self._keep()

    async def settle(self, thread: Thread) -> None:
        """Nothing is left there."""
        self._dirty.discard(thread)
        self._noted.pop(thread, None)
        try:
            await self._keep()
        except StoreError as error:
            log.debug("a thread will be checked at the next start: %s", error)

    async def sweep(self, thread: Thread, ref: MessageRef = NOWHERE) -> None:
        """Delete ``ref``, or what is found in the thread, however long the chat cannot be reached."""
        self._dirty.add(thread)
        wait_s = AGAIN_S
        while not await self._swept(thread, ref):
            await self._clock.sleep(wait_s)
            wait_s = min(wait_s * 2, AGAIN_CAP_S)
        await self.settle(thread)

    async def _keep(self) -> None:
        noted = [(*thread, since_s) for thread, since_s in self._noted.items()]
        await self._notes.keep_note(NOTE, msgspec.json.encode(noted).decode())

    async def _swept(self, thread: Thread, ref: MessageRef) -> bool:
        channel, _ = thread
        try:
            for each in [ref] if ref else await self._found(thread):
                await self._delete(channel, each)
        except ChatRateLimitedError as error:
            self._loop.pause("delete", channel, error.retry_after_s)
            return False
        except (ChatAuthError, ChatUnreachableError, ChatOutcomeUnknownError):
            return False
        except ChatError as error:
            log.debug("a streamed message could not be removed: %s", error)
        return True

    async def _found(self, thread: Thread) -> list[MessageRef]:
        # Calls still under way inside the chat would not be seen yet.
        await self._clock.sleep(SETTLED_S)
        channel, root = thread
        since_s = self._noted.get(thread, 0.0)
        found: list[MessageRef] = []
        cursor = ""
        while True:
            page = await self._reader.own(channel, root, since_s, cursor)
            found += [
                own.ref for own in page.messages if not own.op_id and not own.is_file and own.ref != root
            ]
            if not (cursor := page.next_cursor):
                return found

    async def _delete(self, channel: ConversationRef, ref: MessageRef) -> None:
        await self._loop.claim("stop_stream", channel)
        try:
            await self.chat.stop_stream(channel, ref)
        except ChatError as error:
            log.debug("a stream that is to be removed has already ended: %s", error)
        await self._loop.claim("delete", channel)
        try:
            await self.chat.delete(channel, ref)
        except ChatError as error:
            if error.code != "message_not_found":
                raise
