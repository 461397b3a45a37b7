"""Whether we may write at all: the chat accepts our token, and a channel is open to us. What is to be said waits.
And reading what is in a channel, within the limits: what was said, and what of it was our doing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

from codebutler.chat.delivery.loop import Loop
from codebutler.chat.port import Call, Capabilities, ChannelMoved, ChatPort, HistoryPage, Identity, OwnPage
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatAuthError, ChatError, ChatRateLimitedError
from codebutler.domain.model import Value
from codebutler.platform.tasks import Observers

PROBE_BASE_S = 5.0
PROBE_CAP_S = 60.0

log = logging.getLogger("codebutler.chat.delivery")


class Authority:
    """The loop waits while the token does not work: after ``lost`` the chat is asked who we are, ever more slowly,
    until it tells.

    ``trouble`` says what is wrong while it is, and is "" else.
    """

    def __init__(self, chat: ChatPort, loop: Loop, clock: Clock) -> None:
        self.trouble = ""
        self._chat = chat
        self._loop = loop
        self._clock = clock
        self._probe: asyncio.Task[None] | None = None
        self.refusals = 0
        """In a row; none since a call went through."""
        self._me: Identity | None = None

    async def me(self) -> Identity:
        """Who we are, asked for once. Raises ChatError."""
        if self._me is None:
            self._me = await self._chat.identity()
        return self._me

    async def url(self) -> str:
        """The workspace's own address; "" while the chat does not tell."""
        try:
            return (await self.me()).url
        except ChatError:
            return ""

    def lost(self, error: ChatAuthError) -> None:
        """The chat refused the token: close, and find out when it works again."""
        if self.trouble:
            return
        log.error("%s", error)
        self.trouble = str(error)
        self._loop.token(works=False)
        self._probe = asyncio.create_task(self._until_accepted(), name="token probe")

    async def close(self) -> None:
        """Stop asking."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)

    async def _until_accepted(self) -> None:
        accepted = False
        while not accepted:
            await self._clock.sleep(min(PROBE_CAP_S, PROBE_BASE_S * 2.0 ** min(self.refusals, 10)))
            # Counts on until a real call goes through: a token may pass here and be refused there.
            self.refusals += 1
            accepted = await self._accepted()
        self.trouble = ""
        self._loop.token(works=True)
        log.info("the chat accepts the token again")

    async def _accepted(self) -> bool:
        try:
            self._me = await self._chat.identity()
        except ChatError:
            return False
        return True


PROBE_S = 60.0
"""So often it is tried again where no event says that the channel is back."""
_AFTER = {"archived": "is_archived", "left": "not_in_channel"}

log = logging.getLogger("codebutler.chat.delivery")


class Channels:
    """Which channels are closed to us, and why. ``closed``: the chat's codes for it, each with what to do."""

    def __init__(self, loop: Loop, closed: Mapping[str, str]) -> None:
        self.closed = closed
        self.changed = Observers[()]()
        self._loop = loop
        self._closed: dict[str, str] = {}

    def trouble(self, channel: str) -> str:
        """Why we may not write there and what to do, "" if we may."""
        return self.closed.get(self._closed.get(channel, ""), "")

    def moved(self, moved: ChannelMoved) -> None:
        """The chat has said so."""
        if moved.how == "back":
            self.accepted(moved.channel)
        else:
            self.refused(moved.channel, _AFTER[moved.how])

    def refused(self, channel: str, code: str) -> None:
        """It was tried, and it is closed."""
        self._loop.closed(channel, PROBE_S)
        if self._closed.get(channel) != code:
            self._closed[channel] = code
            log.warning("%s: %s", channel, self.closed.get(code, code))
            self.changed.tell()

    def accepted(self, channel: str) -> None:
        """Something was said there."""
        if self._closed.pop(channel, None) is not None:
            log.info("%s: what waited is said now", channel)
            self._loop.closed(channel, None)
            self.changed.tell()


# How far back a message can be whose answer we lost. In a thread all of it is read.
LOOK_BACK_S = 7 * 24 * 3600.0
MAX_PAGES = 50

T = TypeVar("T")


class Reader:
    """Each page when what is dearer leaves room for it. A chat without history tells nothing."""

    def __init__(self, can: Capabilities, loop: Loop, clock: Clock) -> None:
        self._can = can
        self._loop = loop
        self._clock = clock

    async def history(
        self,
        channel: str,
        *,
        thread_ts: str | None = None,
        since_s: float = 0.0,
        cursor: str = "",
        value: Value | None = None,
    ) -> HistoryPage:
        """A page of messages, as in the port. Without a ``value`` it can wait: first pages go before later ones, and
        everything else before both. Raises ChatError as the port."""
        if self._can.history is None:
            return HistoryPage()
        await self._claim(channel, thread_ts, value or ("sign" if cursor else "progress"))
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
        self,
        read: Callable[..., Awaitable[T]],
        channel: str,
        thread_ts: str | None,
        since_s: float,
        cursor: str,
    ) -> T:
        try:
            return await read(channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor)
        except ChatRateLimitedError as error:
            self._loop.pause(_call(thread_ts), channel, error.retry_after_s)
            raise


def _call(thread_ts: str | None) -> Call:
    return "history" if thread_ts is None else "replies"
