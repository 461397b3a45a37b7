"""The one way out: every operation of every worker passes here, in order, within the limits, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import Self

from codebutler.clock import Clock
from codebutler.errors import ChatError, ChatUnreachableError
from codebutler.intake.notes import Notes
from codebutler.model import Operation, React
from codebutler.slack.authority import Authority
from codebutler.slack.detour import Detour, NoDetour
from codebutler.slack.gate import Gate
from codebutler.slack.items import Items
from codebutler.slack.lanes import Lanes
from codebutler.slack.leftovers import Leftovers
from codebutler.slack.marking import Marking
from codebutler.slack.outgoing import item_of
from codebutler.slack.port import ChatPort, Page
from codebutler.slack.reading import Background, Reader
from codebutler.slack.streams import Streams
from codebutler.slack.uploads import Uploads


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
        self._authority = Authority(chat, clock)
        gate = Gate(self._authority, clock, rng or Random())  # noqa: S311 - spreads retries, guards nothing
        self._reader = Reader(chat, gate, clock)
        self.background = Background(self._reader)
        """What was said, for those who can wait: whatever is sent or looked up goes first."""
        self._items = Items()
        leftovers = Leftovers(chat, gate, self._reader, notes, clock) if notes else None
        self._streams = Streams(chat, gate, clock, redact, leftovers)
        self._lanes = Lanes(self._streams, gate, self._items, self._reader, Uploads(chat, notes), redact)
        self._marking = Marking(chat, gate, self._items)

    async def __aenter__(self) -> Self:
        await self._streams.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._items.closed = True
        await self._lanes.close()
        await self._streams.close()
        await self._marking.close()
        await self._authority.close()
        self._items.close()

    @property
    def pending(self) -> int:
        """How many operations wait or are under way."""
        return len(self._items)

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
        await self._items.idle()

    async def submit(self, channel: str, op_id: str, operation: Operation, *, unsure: bool = False) -> str:
        """Do ``operation`` in ``channel``; returns the message's ts, the file's id, or "".

        The same ``op_id`` again, while it is under way or was done lately, is the same operation: doing an
        edit or a reaction twice could undo a later one. Only an edit or a reaction of other content is a new
        one. ``unsure``: it may have been done before, so look first. Raises ChatError when Slack refuses it
        for good, and ChatUnreachableError when the sender closes before it is known to be done.
        """
        place = self.where(channel, item_of(operation))
        ts = await self._submit(place, op_id, operation, unsure=unsure)
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

    async def _submit(self, channel: str, op_id: str, operation: Operation, *, unsure: bool) -> str:
        if (result := self._items.done(channel, op_id, operation)) is not None:
            return result
        item = self._items.waiting(channel, op_id, operation)
        if item is None:
            item = self._items.add(channel, op_id, operation, unsure=unsure)
            if isinstance(operation, React):
                self._marking.add(item, operation)
            else:
                self._lanes.add(item)
        try:
            return await asyncio.shield(item.result)
        except asyncio.CancelledError:
            if self._items.closed and item.result.cancelled():
                raise ChatUnreachableError("the sender was closed before this was sent", "closed") from None
            raise

    async def history(
        self, channel: str, *, thread_ts: str | None = None, oldest: str = "", cursor: str = ""
    ) -> Page:
        """A page of messages, as in the port, once the rate limits allow it. Raises ChatError as the port."""
        if thread_ts is not None:
            channel = self.where(channel, thread_ts)
        return await self._reader.page(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor)
