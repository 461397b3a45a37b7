"""Sends every operation of every worker, in order, within the limits, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import Self, TypeVar

from codebutler.chat.delivery.access import Authority, Channels, Reader
from codebutler.chat.delivery.attempts import Attempts
from codebutler.chat.delivery.handover import Handover
from codebutler.chat.delivery.leftovers import Leftovers
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.delivery.outgoing import Editor, in_public, route
from codebutler.chat.delivery.streams import Streamer
from codebutler.chat.layout import Section
from codebutler.chat.port import Call, ChatPort, History, HistoryPage
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import Operation, Value
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.intake.direct import DirectThreads
from codebutler.intake.records import Notes

T = TypeVar("T")


class Sender:
    """Sends operations through a ChatPort. An async context manager; leaving it stops sending at once.

    ``editor`` sees every text last. ``direct`` knows which messages of a worker's channel
    are in a direct conversation; there an answer is streamed while it is written. ``notes`` record that, posts and
    uploaded files. While the token is refused everything waits, and ``trouble`` says so.
    """

    def __init__(
        self,
        chat: ChatPort,
        clock: Clock,
        editor: Editor,
        notes: Notes,
        *,
        rng: Random | None = None,
        direct: DirectThreads | None = None,
    ) -> None:
        self._direct = direct
        self.places = direct.places if direct else {}
        """The direct conversations of those messages and files of a channel that are not in it."""
        can = chat.capabilities
        self._whispers = can.ephemeral is not None
        self.limits = chat.limits
        self._home = can.home
        self._clock = clock
        self._loop = Loop(chat.limits, clock)
        self.counts = self._loop.counts
        """How many calls there were."""
        self._authority = Authority(chat, self._loop, clock)
        self.channels = Channels(self._loop, chat.limits.closed)
        """Where nothing can be posted now."""
        self._reader = Reader(can, self._loop, clock)
        self.background: History = self._reader
        """Reads messages for callers that can wait: sends and look-ups go first."""
        leftovers = None
        if can.streams and can.look_up:
            leftovers = Leftovers(can.streams, self._loop, self._reader, notes, clock)
        self._streams = Streamer(chat, self._loop, clock, editor.redact, leftovers)
        self._handover = Handover(chat, self._streams, notes, editor, self._authority)
        spread = rng or Random()  # noqa: S311 - spreads retries, guards nothing
        access = (self._authority, self.channels, self._reader)
        can_look = can.look_up is not None
        self._attempts = Attempts(self._loop, self._handover, access, clock, spread, can_look=can_look)

    async def __aenter__(self) -> Self:
        await self._handover.begin()
        await self._streams.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._attempts.close()
        await self._streams.close()
        await self._authority.close()
        await self._loop.close()

    @property
    def pending(self) -> int:
        """How many operations wait or are under way, without those whose channel is closed."""
        return sum(not self._loop.is_closed(item) for item in self._attempts.pending)

    @property
    def trouble(self) -> str:
        """Why nothing can be sent now; "" if it can."""
        return self._authority.trouble

    def where(self, channel: ConversationRef, item: str) -> ConversationRef:
        """Where the message or file that a channel knows really is."""
        return self.places.get((channel, item), channel)

    async def workspace_url(self) -> str:
        """The workspace's own address; "" while the chat does not tell."""
        return await self._authority.url()

    async def drain(self) -> None:
        """Wait until nothing is pending. Put a deadline around it."""
        while self.pending:
            await self._attempts.changed()

    async def submit(
        self,
        channel: ConversationRef,
        op_id: str,
        operation: Operation,
        *,
        unsure: bool = False,
        lasting: bool = False,
    ) -> MessageRef:
        """As ``deliver``; returns the result alone."""
        result, _ = await self.deliver(channel, op_id, operation, unsure=unsure, lasting=lasting)
        return result

    async def deliver(
        self,
        channel: ConversationRef,
        op_id: str,
        operation: Operation,
        *,
        unsure: bool = False,
        lasting: bool = False,
    ) -> tuple[MessageRef, Operation | None]:
        """Do ``operation`` in ``channel``. Returns the message's ref, the file's ID, or ""; and the operation
        as it was sent, None if that was done recently, or nobody needs it any more.

        The same ``op_id`` again, while it is under way or was done recently, is the same operation: doing an
        edit or a reaction twice could undo a later one. Only an edit or a reaction with other content is a
        new one, and an outdated post is not sent. ``unsure``: it may have been done before, so look first.
        ``lasting``: the caller has it on disk and repeats it after each restart; it waits while its channel
        is closed. Raises ChatError if the chat refuses it for good, and ChatUnreachableError if the sender
        closes before the outcome is known.
        """
        _, ref = route(operation)
        place = self.places.get((channel, ref), channel)
        if not self._whispers:
            operation = in_public(operation, is_direct=place != channel)
        item = self._attempts.start(place, op_id, operation, unsure=unsure, lasting=lasting)
        if isinstance(item, str):
            return item, None
        try:
            result = await asyncio.shield(item.result)
        except asyncio.CancelledError:
            if self._attempts.is_closed and item.result.cancelled():
                raise ChatUnreachableError("the sender was closed before this was sent", "closed") from None
            raise
        if self._direct and place != channel and result:
            await self._direct.posted(channel, place, result)
        return result, item.operation

    async def within_limits(
        self, call: Call, channel: ConversationRef, work: Callable[[], Awaitable[T]], value: Value = "notice"
    ) -> T:
        """Make a call that is no operation when it is its turn; retries once if the chat says that it came
        too soon. Raises ChatError as ``work`` does."""
        while True:
            await self._loop.claim(call, channel, value)
            try:
                return await work()
            except ChatRateLimitedError as error:
                self._loop.pause(call, channel, error.retry_after_s)
                await self._clock.sleep(error.retry_after_s)

    async def publish_home(self, user: PersonRef, parts: Sequence[Section]) -> None:
        """Show a person's home page, within the limits; does nothing in a chat without homes. Raises
        ChatError."""
        if self._home is not None:
            # A home has limits of its own, as a channel has.
            await self.within_limits(
                "publish", ConversationRef(user), partial(self._home.publish_home, user, parts)
            )

    def written(self, place: ConversationRef, thread: MessageRef, text: str, *, whole: bool) -> None:
        """The current text of a block of an agent's prose, streamed in a direct conversation; ``whole``: it is
        complete."""
        (self._streams.written if whole else self._streams.writing)(place, thread, text)

    def turn_over(self, place: ConversationRef, thread: MessageRef) -> None:
        """No more text will follow there, except for an answer that may be under way."""
        self._streams.over(place, thread)

    async def history(
        self,
        channel: ConversationRef,
        *,
        thread: MessageRef | None = None,
        since_s: float = 0.0,
        cursor: str = "",
    ) -> HistoryPage:
        """A page of messages, as in the port, once the rate limits allow it; an empty one if the chat has no
        history. Raises ChatError as the port."""
        if thread is not None:
            channel = self.where(channel, thread)
        return await self._reader.history(
            channel, thread=thread, since_s=since_s, cursor=cursor, value="notice"
        )
