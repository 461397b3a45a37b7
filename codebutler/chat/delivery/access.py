"""Our access to a chat: whether we may write at all (it accepts our token, and a channel is open to us), and reading
within its limits: messages, and which of them are ours."""

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
from codebutler.domain.refs import ConversationRef, MessageRef
from codebutler.platform.tasks import Observers

PROBE_BASE_S = 5.0
PROBE_CAP_S = 60.0
PROBE_S = 60.0
"""How often to retry if no event says that the channel is open again."""
_AFTER = {"archived": "is_archived", "left": "not_in_channel"}
# How old a message can be whose answer we lost. In a thread everything is read.
LOOK_BACK_S = 7 * 24 * 3600.0
MAX_PAGES = 50
T = TypeVar("T")

log = logging.getLogger("codebutler.chat.delivery")


class Authority:
    """The loop waits while the token does not work: after ``lost`` it asks the chat who we are, with backoff,
    until it answers.

    ``trouble`` describes the problem meanwhile, and is "" otherwise.
    """

    def __init__(self, chat: ChatPort, loop: Loop, clock: Clock) -> None:
        self.trouble = ""
        self._chat = chat
        self._loop = loop
        self._clock = clock
        self._probe: asyncio.Task[None] | None = None
        self.refusals = 0
        """Failures in a row; none since a call succeeded."""
        self._me: Identity | None = None

    async def me(self) -> Identity:
        """Our own identity, cached. Raises ChatError."""
        if self._me is None:
            self._me = await self._chat.identity()
        return self._me

    async def url(self) -> str:
        """The workspace's own address; "" if unknown."""
        try:
            return (await self.me()).url
        except ChatError:
            return ""

    def lost(self, error: ChatAuthError) -> None:
        """The chat refused the token: close, and wait until it works again."""
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
            # Keeps counting until a real call succeeds: a token may pass here and be refused there.
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


class Channels:
    """Which channels are closed to us, and why. ``closed``: the chat's codes for that, each with what to do."""

    def __init__(self, loop: Loop, closed: Mapping[str, str]) -> None:
        self.closed = closed
        self.changed = Observers[()]()
        self._loop = loop
        self.refusals: dict[ConversationRef, str] = {}
        """The closed channels, each with the chat's code."""

    def trouble(self, channel: ConversationRef) -> str:
        """Why we may not write there and what to do, "" if we may."""
        return self.closed.get(self.refusals.get(channel, ""), "")

    def moved(self, moved: ChannelMoved) -> None:
        """The chat reported that a channel was closed or opened."""
        if moved.how == "back":
            self.accepted(moved.channel)
        else:
            self.refused(moved.channel, _AFTER[moved.how])

    def refused(self, channel: ConversationRef, code: str) -> None:
        """A call was tried, and it is closed."""
        self._loop.closed(channel, PROBE_S)
        if self.refusals.get(channel) != code:
            self.refusals[channel] = code
            log.warning("%s: %s", channel, self.closed.get(code, code))
            self.changed.tell()

    def accepted(self, channel: ConversationRef) -> None:
        """Something was posted there."""
        if self.refusals.pop(channel, None) is not None:
            log.info("%s: sending what was waiting", channel)
            self._loop.closed(channel, None)
            self.changed.tell()


class Reader:
    """Each page waits for more valuable calls. A chat without history finds nothing."""

    def __init__(self, can: Capabilities, loop: Loop, clock: Clock) -> None:
        self._can = can
        self._loop = loop
        self._clock = clock

    async def history(
        self,
        channel: ConversationRef,
        *,
        thread: MessageRef | None = None,
        since_s: float = 0.0,
        cursor: str = "",
        value: Value | None = None,
    ) -> HistoryPage:
        """A page of messages, as in the port. Without a ``value`` it can wait: first pages go before later
        ones, and everything else before both. Raises ChatError as the port."""
        if self._can.history is None:
            return HistoryPage()
        await self._claim(channel, thread, value or ("sign" if cursor else "progress"))
        return await self._read(self._can.history.history, channel, thread, since_s, cursor)

    async def own(
        self, channel: ConversationRef, thread: MessageRef, since_s: float, cursor: str = ""
    ) -> OwnPage:
        """A page of our own messages in a thread, as in the port. Raises ChatError as the port."""
        if self._can.look_up is None:
            return OwnPage()
        await self._claim(channel, thread, "notice")
        return await self._read(self._can.look_up.own, channel, thread, since_s, cursor)

    async def find(
        self, channel: ConversationRef, thread: MessageRef | None, op_ids: Collection[str]
    ) -> dict[str, MessageRef]:
        """The ref of each operation's message; nothing for those that made none. The caller claims the first
        page.

        Raises ChatError if the chat cannot be asked now; if it refuses to tell, nothing is found.
        """
        found: dict[str, MessageRef] = {}
        if (look_up := self._can.look_up) is None:
            return found
        since_s = self._clock.now().timestamp() - LOOK_BACK_S if thread is None else 0.0
        cursor = ""
        try:
            for _ in range(MAX_PAGES):
                if cursor:
                    await self._claim(channel, thread, "answer")
                page = await self._read(look_up.own, channel, thread, since_s, cursor)
                found = {own.op_id: own.ref for own in page.messages if own.op_id in op_ids} | found
                if len(found) == len(op_ids) or not (cursor := page.next_cursor):
                    break
        except ChatError as error:
            if type(error) is not ChatError:
                raise
            log.warning("cannot look for earlier attempts in %s: %s", channel, error.code)
        return found

    async def _claim(self, channel: ConversationRef, thread: MessageRef | None, value: Value) -> None:
        await self._loop.claim(_call(thread), channel, value, needs_token=False)

    async def _read(
        self,
        read: Callable[..., Awaitable[T]],
        channel: ConversationRef,
        thread: MessageRef | None,
        since_s: float,
        cursor: str,
    ) -> T:
        try:
            return await read(channel, thread=thread, since_s=since_s, cursor=cursor)
        except ChatRateLimitedError as error:
            self._loop.pause(_call(thread), channel, error.retry_after_s)
            raise


def _call(thread: MessageRef | None) -> Call:
    return "history" if thread is None else "replies"
