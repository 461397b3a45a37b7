"""Reading what is in a channel, within the limits: what was said, and what of it was our doing."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol, TypeVar

from codebutler.chat.delivery.loop import Loop
from codebutler.chat.port import Call, Capabilities, OwnPage, Page
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError
from codebutler.domain.model import Value

# How far back a message can be whose answer we lost. In a thread all of it is read.
LOOK_BACK_S = 7 * 24 * 3600.0
MAX_PAGES = 50

log = logging.getLogger("codebutler.chat.delivery")

T_co = TypeVar("T_co", covariant=True)


class _Read(Protocol[T_co]):
    async def __call__(self, channel: str, *, thread_ts: str | None, since_s: float, cursor: str) -> T_co: ...


class Reader:
    """Each page when what is dearer leaves room for it. A chat without history tells nothing."""

    def __init__(self, can: Capabilities, loop: Loop, clock: Clock) -> None:
        self._can = can
        self._loop = loop
        self._clock = clock

    async def page(
        self,
        channel: str,
        *,
        thread_ts: str | None = None,
        since_s: float = 0.0,
        cursor: str = "",
        value: Value = "notice",
    ) -> Page:
        """A page of messages, as in the port. Raises ChatError as the port."""
        if self._can.history is None:
            return Page()
        await self._claim(channel, thread_ts, value)
        return await self._read(self._can.history.history, channel, thread_ts, since_s, cursor)

    async def own(self, channel: str, thread_ts: str, since_s: float, cursor: str = "") -> OwnPage:
        """A page of our own messages in a thread, as in the port. Raises ChatError as the port."""
        if self._can.look_up is None:
            return OwnPage()
        await self._claim(channel, thread_ts, "notice")
        return await self._read(self._can.look_up.own, channel, thread_ts, since_s, cursor)

    async def find(self, channel: str, thread_ts: str | None, op_ids: Collection[str]) -> dict[str, str]:
        """The ts of the message that each operation made; nothing for those that made none. The first page is claimed
        by who asks.

        Raises ChatError when the chat cannot be asked now; where it refuses to tell, nothing is found.
        """
        found: dict[str, str] = {}
        if (look_up := self._can.look_up) is None:
            return found
        since_s = self._clock.now().timestamp() - LOOK_BACK_S if thread_ts is None else 0.0
        cursor = ""
        try:
            for _ in range(MAX_PAGES):
                if cursor:
                    await self._claim(channel, thread_ts, "answer")
                page = await self._read(look_up.own, channel, thread_ts, since_s, cursor)
                found = {own.op_id: own.ts for own in page.messages if own.op_id in op_ids} | found
                if len(found) == len(op_ids) or not (cursor := page.next_cursor):
                    break
        except ChatError as error:
            if type(error) is not ChatError:
                raise
            log.warning("cannot look for earlier attempts in %s: %s", channel, error.code)
        return found

    async def _claim(self, channel: str, thread_ts: str | None, value: Value) -> None:
        await self._loop.claim(_call(thread_ts), channel, value, needs_token=False)

    async def _read(
        self, read: _Read[T_co], channel: str, thread_ts: str | None, since_s: float, cursor: str
    ) -> T_co:
        try:
            return await read(channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor)
        except ChatRateLimitedError as error:
            self._loop.pause(_call(thread_ts), channel, error.retry_after_s)
            raise


class Background:
    """History for what can wait: first pages go before later ones, and everything else before both."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def history(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> Page:
        """As in the port."""
        value: Value = "sign" if cursor else "progress"
        return await self._reader.page(
            channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor, value=value
        )


def _call(thread_ts: str | None) -> Call:
    return "history" if thread_ts is None else "replies"
