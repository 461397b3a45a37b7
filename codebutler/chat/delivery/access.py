"""Whether we may write at all: the chat accepts our token, and a channel is open to us. What is to be said waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from codebutler.chat.delivery.loop import Loop
from codebutler.chat.port import ChannelMoved, ChatPort, Identity
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatAuthError, ChatError
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
