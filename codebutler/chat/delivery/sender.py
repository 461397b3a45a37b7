"""The one way out: every operation of every worker passes here, in order, within the limits, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self

from codebutler.chat.delivery.attempts import Attempts
from codebutler.chat.delivery.authority import Authority
from codebutler.chat.delivery.channels import Channels
from codebutler.chat.delivery.detour import Detour, NoDetour
from codebutler.chat.delivery.handed import Handed
from codebutler.chat.delivery.items import Items
from codebutler.chat.delivery.leftovers import Leftovers
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.delivery.outgoing import in_public, item_of
from codebutler.chat.delivery.outlet import Outlet
from codebutler.chat.delivery.reading import Background, Reader
from codebutler.chat.delivery.recovery import Recovery
from codebutler.chat.delivery.streams import Streamer
from codebutler.chat.delivery.uploads import Uploads
from codebutler.chat.port import ChatPort, Page
from codebutler.clock import Clock
from codebutler.errors import ChatError, ChatUnreachableError
from codebutler.intake.notes import Notes
from codebutler.model import Operation, Post


class Sender:
    """Sends operations through a ChatPort. An async context manager; leaving it stops sending at once.

    ``redact`` sees every text last. ``detour`` says what stands in another place than the channel it was meant for;
    there an answer is streamed while it is written, if ``notes`` keep where. They also keep which file an upload is.
    While the token is refused everything waits, and ``trouble`` says so.
    """

    def __init__(
        self,
        chat: ChatPort,
        clock: Clock,
        redact: Callable[[str], str],
        *,
        rng: Random | None = None,
        detour: Detour | None = None,
        notes: Notes | None = None,
    ) -> None:
        self._detour = detour or NoDetour()
        can = chat.capabilities
        self._items = Items(can_look=can.look_up is not None)
        self._whispers = can.ephemeral is not None
        self._loop = Loop(chat.limits, clock)
        self._authority = Authority(chat, self._loop, clock)
        self.channels = Channels(self._loop)
        """Where nothing can be said now."""
        self._reader = Reader(can, self._loop, clock)
        self.background = Background(self._reader)
        """What was said, for those who can wait: whatever is sent or looked up goes first."""
        leftovers = None
        if can.streams and can.look_up and notes:
            leftovers = Leftovers(can.streams, self._loop, self._reader, notes, clock)
        self._streams = Streamer(chat, self._loop, clock, redact, leftovers)
        self._handed = Handed(notes)
        outlet = Outlet(chat, self._streams, Uploads(chat, notes), self._handed, redact)
        spread = rng or Random()  # noqa: S311 - spreads retries, guards nothing
        recovery = Recovery(self._loop, self._authority, self.channels, spread)
        self._attempts = Attempts(self._items, self._loop, outlet, self._reader, recovery, clock)

    async def __aenter__(self) -> Self:
        await self._handed.begin()
        await self._streams.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._items.is_closed = True
        await self._attempts.close()
        await self._streams.close()
        await self._authority.close()
        await self._loop.close()
        self._items.close()

    @property
    def pending(self) -> int:
        """How many operations wait or are under way, but for those whose channel is closed."""
        return sum(not self._loop.is_closed(item.waiting) for item in self._items.pending)

    @property
    def trouble(self) -> str:
        """Why nothing can be sent now; "" while all is well."""
        return self._authority.trouble

    async def workspace_url(self) -> str:
        """The workspace's own address; "" while Slack does not tell."""
        try:
            return (await self._authority.me()).url
        except ChatError:
            return ""

    async def drain(self) -> None:
        """Wait until nothing is pending. Put a deadline around it."""
        while self.pending:
            await self._items.changed()

    async def submit(
        self, channel: str, op_id: str, operation: Operation, *, unsure: bool = False, lasting: bool = False
    ) -> str:
        """Do ``operation`` in ``channel``; returns the message's ts, the file's id, or "".

        The same ``op_id`` again, while it is under way or was done lately, is the same operation: doing an
        edit or a reaction twice could undo a later one. Only an edit or a reaction of other content is a new
        one, and a post that is outdated by now is left unsent. ``unsure``: it may have been done before, so look
        first. ``lasting``: whoever asks has it on disk and asks again in every life; it waits while its channel is
        closed. Raises ChatError when Slack refuses it for good, and ChatUnreachableError when the sender closes
        before it is known to be done.
        """
        if not self._whispers:
            operation = in_public(operation)
        place = self.where(channel, item_of(operation))
        ts = await self._submit(place, op_id, operation, unsure=unsure, lasting=lasting)
        if place != channel and ts:
            await self._detour.posted(channel, place, ts)
        return ts

    def where(self, channel: str, item: str) -> str:
        """Where the message or file that is known by ``channel`` really stands."""
        return self._detour.where(channel, item)

    def relinked(self, text: str) -> str:
        """The text with its links to messages leading to where they stand."""
        return self._detour.relinked(text)

    def written(self, channel: str, thread_ts: str, text: str, *, whole: bool) -> None:
        """There is so much of a block of an agent's prose; ``whole``: all of it. Streamed in direct conversations."""
        if (place := self.where(channel, thread_ts)) != channel:
            (self._streams.written if whole else self._streams.writing)(place, thread_ts, text)

    def turn_over(self, channel: str, thread_ts: str) -> None:
        """Nothing more is written there, but for the answer that may be under way."""
        self._streams.over(self.where(channel, thread_ts), thread_ts)

    async def _submit(
        self, channel: str, op_id: str, operation: Operation, *, unsure: bool, lasting: bool
    ) -> str:
        if (result := self._items.done(channel, op_id, operation)) is not None:
            return result
        item = self._items.waiting(channel, op_id, operation)
        if item is None:
            if isinstance(operation, Post) and operation.outdated and not unsure:
                return ""
            item = self._items.add(channel, op_id, operation, unsure=unsure, lasting=lasting)
            self._attempts.add(item)
        elif isinstance(operation, Post) and operation.outdated:
            self._attempts.outdate(item)
        try:
            return await asyncio.shield(item.result)
        except asyncio.CancelledError:
            if self._items.is_closed and item.result.cancelled():
                raise ChatUnreachableError("the sender was closed before this was sent", "closed") from None
            raise

    async def history(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> Page:
        """A page of messages, as in the port, once the rate limits allow it; an empty one where the chat has no
        history. Raises ChatError as the port."""
        if thread_ts is not None:
            channel = self.where(channel, thread_ts)
        return await self._reader.page(channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor)
