"""The one way out: every operation of every worker passes here, in order, within the limits, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Self, TypeVar

from codebutler.chat.delivery.access import Authority, Channels, Reader
from codebutler.chat.delivery.attempts import Attempts, Recovery
from codebutler.chat.delivery.handover import Handover
from codebutler.chat.delivery.leftovers import Leftovers
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.delivery.outgoing import Detour, Editor, Items, about, in_public
from codebutler.chat.delivery.streams import Streamer
from codebutler.chat.layout import Section
from codebutler.chat.port import Call, ChatPort, History, HistoryPage
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import Operation, Post, Value
from codebutler.intake.records import Notes

T = TypeVar("T")


class Sender:
    """Sends operations through a ChatPort. An async context manager; leaving it stops sending at once.

    ``editor`` has the last word on every text. ``detour`` says what stands in another place than the channel it was
    meant for; there an answer is streamed while it is written, if ``notes`` keep where. They also keep which file an
    upload is.
    While the token is refused everything waits, and ``trouble`` says so.
    """

    def __init__(
        self,
        chat: ChatPort,
        clock: Clock,
        editor: Editor,
        *,
        rng: Random | None = None,
        detour: Detour | None = None,
        notes: Notes | None = None,
    ) -> None:
        self._detour = detour
        can = chat.capabilities
        self._items = Items(can_look=can.look_up is not None)
        self._whispers = can.ephemeral is not None
        self._kept = chat.limits.kept
        self._home = can.home
        self._clock = clock
        self._loop = Loop(chat.limits, clock)
        self._authority = Authority(chat, self._loop, clock)
        self.channels = Channels(self._loop, chat.limits.closed)
        """Where nothing can be said now."""
        self._reader = Reader(can, self._loop, clock)
        self.background: History = self._reader
        """What was said, for those who can wait: whatever is sent or looked up goes first."""
        leftovers = None
        if can.streams and can.look_up and notes:
            leftovers = Leftovers(can.streams, self._loop, self._reader, notes, clock)
        self._streams = Streamer(chat, self._loop, clock, editor.redact, leftovers)
        self._handover = Handover(chat, self._streams, notes, editor, self._authority)
        spread = rng or Random()  # noqa: S311 - spreads retries, guards nothing
        recovery = Recovery(self._loop, self._authority, self.channels, spread)
        self._attempts = Attempts(self._items, self._loop, self._handover, self._reader, recovery, clock)

    async def __aenter__(self) -> Self:
        await self._handover.begin()
        await self._streams.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._items.is_closed = True
        await self._attempts.close()
        await self._streams.close()
        await self._authority.close()
        await self._loop.close()
        self._items.close()

    @property
    def pending(self) -> int:
        """How many operations wait or are under way, but for those whose channel is closed."""
        return sum(not self._loop.is_closed(item) for item in self._items.pending)

    @property
    def trouble(self) -> str:
        """Why nothing can be sent now; "" while all is well."""
        return self._authority.trouble

    @property
    def kept(self) -> timedelta | None:
        """How long the chat keeps what nobody took; None = for good."""
        return self._kept

    async def workspace_url(self) -> str:
        """The workspace's own address; "" while the chat does not tell."""
        return await self._authority.url()

    async def drain(self) -> None:
        """Wait until nothing is pending. Put a deadline around it."""
        while self.pending:
            await self._items.changed()

    async def submit(
        self, channel: str, op_id: str, operation: Operation, *, unsure: bool = False, lasting: bool = False
    ) -> str:
        """As ``deliver``; returns the result alone."""
        result, _ = await self.deliver(channel, op_id, operation, unsure=unsure, lasting=lasting)
        return result

    async def deliver(
        self, channel: str, op_id: str, operation: Operation, *, unsure: bool = False, lasting: bool = False
    ) -> tuple[str, Operation | None]:
        """Do ``operation`` in ``channel``. Returns the message's ts, the file's id, or ""; and the operation as it
        left, None if that was done lately, or nobody needs it any more.

        The same ``op_id`` again, while it is under way or was done lately, is the same operation: doing an
        edit or a reaction twice could undo a later one. Only an edit or a reaction of other content is a new
        one, and a post that is outdated by now is left unsent. ``unsure``: it may have been done before, so look
        first. ``lasting``: whoever asks has it on disk and asks again in every life; it waits while its channel is
        closed. Raises ChatError when the chat refuses it for good, and ChatUnreachableError when the sender closes
        before it is known to be done.
        """
        place = self.where(channel, about(operation))
        if not self._whispers:
            operation = in_public(operation, is_direct=place != channel)
        is_outdated = isinstance(operation, Post) and operation.outdated
        item = self._items.known(place, op_id, operation)
        if isinstance(item, str):
            return item, None
        if item is None:
            if is_outdated and not unsure:
                return "", None
            item = self._items.add(place, op_id, operation, unsure=unsure, lasting=lasting)
            self._attempts.add(item)
        elif is_outdated:
            self._attempts.outdate(item)
        try:
            result = await asyncio.shield(item.result)
        except asyncio.CancelledError:
            if self._items.is_closed and item.result.cancelled():
                raise ChatUnreachableError("the sender was closed before this was sent", "closed") from None
            raise
        if self._detour and place != channel and result:
            await self._detour.posted(channel, place, result)
        return result, item.operation

    async def within_limits(
        self, call: Call, channel: str, work: Callable[[], Awaitable[T]], value: Value = "notice"
    ) -> T:
        """Make a call that is no operation when it is its turn, and once more where the chat says that it came too
        soon. Raises ChatError as ``work`` does."""
        while True:
            await self._loop.claim(call, channel, value)
            try:
                return await work()
            except ChatRateLimitedError as error:
                self._loop.pause(call, channel, error.retry_after_s)
                await self._clock.sleep(error.retry_after_s)

    async def publish_home(self, user: str, parts: Sequence[Section]) -> None:
        """Show a person's home page, within the limits; nothing in a chat that has none. Raises ChatError."""
        if self._home is not None:
            await self.within_limits("publish", user, partial(self._home.publish_home, user, parts))

    def where(self, channel: str, item: str) -> str:
        """Where the message or file that is known by ``channel`` really stands."""
        return self._detour.where(channel, item) if self._detour else channel

    def written(self, channel: str, thread_ts: str, text: str, *, whole: bool) -> None:
        """There is so much of a block of an agent's prose; ``whole``: all of it. Streamed in direct conversations."""
        if (place := self.where(channel, thread_ts)) != channel:
            (self._streams.written if whole else self._streams.writing)(place, thread_ts, text)

    def turn_over(self, channel: str, thread_ts: str) -> None:
        """Nothing more is written there, but for the answer that may be under way."""
        self._streams.over(self.where(channel, thread_ts), thread_ts)

    async def history(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        """A page of messages, as in the port, once the rate limits allow it; an empty one where the chat has no
        history. Raises ChatError as the port."""
        if thread_ts is not None:
            channel = self.where(channel, thread_ts)
        return await self._reader.history(
            channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor, value="notice"
        )
