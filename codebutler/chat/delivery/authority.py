"""Whether Slack accepts our token: all sending waits here while it does not."""

from __future__ import annotations

import asyncio
import logging

from codebutler.chat.delivery.loop import Loop
from codebutler.chat.port import ChatPort, Identity
from codebutler.clock import Clock
from codebutler.errors import ChatAuthError, ChatError

PROBE_BASE_S = 5.0
PROBE_CAP_S = 60.0

log = logging.getLogger("codebutler.chat.delivery")


class Authority:
    """The loop waits while the token does not work: after ``lost`` it asks Slack who we are, ever more slowly, until it
    may.

    ``trouble`` says what is wrong while it is, and is "" else.
    """

    def __init__(self, chat: ChatPort, loop: Loop, clock: Clock) -> None:
        self.trouble = ""
        self._chat = chat
        self._loop = loop
        self._clock = clock
        self._probe: asyncio.Task[None] | None = None
        self._refusals = 0
        self._me: Identity | None = None

    async def me(self) -> Identity:
        """Who we are, asked for once. Raises ChatError."""
        if self._me is None:
            self._me = await self._chat.identity()
        return self._me

    def proved(self) -> None:
        """A call went through."""
        self._refusals = 0

    def lost(self, error: ChatAuthError) -> None:
        """Slack refused the token: close, and find out when it works again."""
        if self.trouble:
            return
        log.error("%s", error)
        self.trouble = str(error)
        self._loop.token(works=False)
        self._probe = asyncio.create_task(self._until_accepted(), name="slack-probe")

    async def close(self) -> None:
        """Stop asking."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)

    async def _until_accepted(self) -> None:
        accepted = False
        while not accepted:
            await self._clock.sleep(min(PROBE_CAP_S, PROBE_BASE_S * 2.0 ** min(self._refusals, 10)))
            # Counts on until a real call goes through: a token may pass here and be refused there.
            self._refusals += 1
            accepted = await self._accepted()
        self.trouble = ""
        self._loop.token(works=True)
        log.info("Slack accepts the token again")

    async def _accepted(self) -> bool:
        try:
            self._me = await self._chat.identity()
        except ChatError:
            return False
        return True
