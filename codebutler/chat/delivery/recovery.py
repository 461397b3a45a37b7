"""What follows from an attempt that failed: when the operation is called again, or that it never is."""

from __future__ import annotations

import logging
from random import Random

from codebutler.chat.delivery.authority import Authority
from codebutler.chat.delivery.channels import CLOSED, Channels
from codebutler.chat.delivery.items import Item
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.delivery.outgoing import instead
from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.model import React
from codebutler.process.waiting import full_jitter_s

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 30.0
# A request that timed out may still be under way inside the chat: looking at once would see too little.
LOOK_DELAY_S = 2.0

log = logging.getLogger("codebutler.chat.delivery")


class Recovery:
    """Nothing is given up but what the chat refuses for good."""

    def __init__(self, loop: Loop, authority: Authority, channels: Channels, rng: Random) -> None:
        self._loop = loop
        self._authority = authority
        self._channels = channels
        self._rng = rng

    def went_well(self, item: Item) -> None:
        """A call went through."""
        self._authority.proved()
        self._channels.accepted(item.channel)
        if isinstance(item.operation, React):
            self._loop.marked(item.waiting.line, there=not item.operation.remove)

    def failed(self, item: Item, error: ChatError) -> bool:
        """Whether it is called again."""
        wait_s = 0.0
        match error:
            case ChatRateLimitedError():
                self._loop.pause(item.waiting.call, item.channel, error.retry_after_s)
            case ChatAuthError():
                self._authority.lost(error)
            case ChatUnreachableError() | ChatOutcomeUnknownError():
                wait_s = self._backoff_s(item, error)
            case _ if item.waiting.is_lasting and error.code in CLOSED:
                self._channels.refused(item.channel, error.code)
            case _ if item.place and error.code == "message_not_found":
                # Somebody took away what was kept for it.
                item.place = ""
                item.now()
                wait_s = self._backoff_s(item, error)
            case _ if not _simplify(item, error):
                return False
        self._loop.again(item.waiting, wait_s)
        return True

    def _backoff_s(self, item: Item, error: ChatError) -> float:
        item.failures += 1
        if item.failures == 1:
            log.warning("%s; trying again", error)
        wait_s = full_jitter_s(self._rng, item.failures, BACKOFF_BASE_S, BACKOFF_CAP_S)
        if not isinstance(error, ChatOutcomeUnknownError):
            return wait_s
        item.now(unsure=True)
        if isinstance(item.operation, React):
            self._loop.marked(item.waiting.line, there=None)
        return max(wait_s, LOOK_DELAY_S)


def _simplify(item: Item, error: ChatError) -> bool:
    """Too long, blocks or a file that the chat dislikes: once more as short plain text, so that people are told."""
    simple = None if item.is_simplified else instead(item.operation, error.code)
    if simple is None:
        return False
    item.now(simple)
    item.is_simplified = True
    return True
