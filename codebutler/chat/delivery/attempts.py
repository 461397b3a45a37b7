"""Operations on their way: looked for if they may have been done before, called when the loop says so, and called
again if that failed."""

from __future__ import annotations

import logging
from functools import partial
from random import Random

from msgspec.structs import replace

from codebutler.chat.delivery.access import Authority, Channels, Reader
from codebutler.chat.delivery.handover import Handover
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.delivery.outgoing import Item, Items, about, instead
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.model import Post, React, Update
from codebutler.platform.tasks import Tasks, full_jitter_s

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 30.0
# A request that timed out may still be under way inside the chat: looking at once would see too little.
LOOK_DELAY_S = 2.0

log = logging.getLogger("codebutler.chat.delivery")


class Attempts:
    """``add`` an item, and it is settled or refused one day."""

    def __init__(
        self, items: Items, loop: Loop, handover: Handover, reader: Reader, recovery: Recovery, clock: Clock
    ) -> None:
        self._items = items
        self._loop = loop
        self._handover = handover
        self._reader = reader
        self._recovery = recovery
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._look_from_s = clock.monotonic() + LOOK_DELAY_S

    def add(self, item: Item) -> None:
        """Send it when its turn comes. What it makes pointless is done: of edits and marks the last one counts."""
        if isinstance(item.operation, Update | React):
            for older in self._waiting(item):
                # It takes that one's age, so that a message edited all the time is not always last.
                item.number = older.number
                self._settle(older, "")
        if item.unsure:
            # Nothing that an earlier process of ours sent may still be under way inside the chat.
            item.from_s = self._look_from_s
        elif item.call == "react" and item.value == "sign":
            # Who sets a sign has not set it before.
            self._loop.marked(item.line, there=False, is_guess=True)
        item.is_busy = item.unsure and isinstance(item.operation, Post)
        self._loop.enter(item, partial(self._begin, item), partial(self._settle, item, ""))
        if item.is_busy:
            self._tasks.start(self._recall(item), name=f"recall of {item.op_id}")

    def outdate(self, item: Item) -> None:
        """Nobody needs it any more: if it has not been sent yet, it is left unsent."""
        if isinstance(item.operation, Post):
            item.operation = replace(item.operation, outdated=True)
            if not item.unsure and not item.is_busy:
                self._settle(item, "")

    async def close(self) -> None:
        """Stop at once."""
        await self._tasks.close(0)

    def _begin(self, item: Item) -> None:
        self._tasks.start(self._attempt(item), name=f"{item.call} in {item.channel}")

    async def _recall(self, item: Item) -> None:
        if ts := await self._handover.recall(item):
            self._settle(item, ts)
        elif not item.unsure:
            self._not_done(item)
        item.is_busy = False
        self._loop.wake()

    async def _attempt(self, item: Item) -> None:
        try:
            if item.step == "look":
                await self._look(item)
            elif item.is_outdated:
                self._settle(item, item.place)
            elif item.step == "keep a place" and isinstance(item.operation, Post):
                await self._handover.keep_place(item, item.operation)
                self._loop.again(item)
            else:
                result = await self._handover.send(item)
                self._recovery.went_well(item)
                self._settle(item, result)
        except ChatError as error:
            if not self._recovery.failed(item, error):
                self._settle(item, error)
            elif not item.unsure:
                self._not_done(item)
        except Exception as error:  # the others must survive whatever one operation brings
            log.exception("an operation could not be sent")
            self._settle(item, ChatError(f"could not be sent: {type(error).__name__}", "internal"))

    async def _look(self, item: Item) -> None:
        """Look for all that may have been said in the conversation, once. Raises ChatError if it cannot be now."""
        asked = {each.op_id: each for each in (item, *self._waiting(item)) if each.step == "look"}
        found = await self._reader.find(item.channel, about(item.operation) or None, asked)
        for op_id, each in asked.items():
            if (ts := found.get(op_id)) is not None:
                self._settle(each, ts)
            else:
                self._not_done(each)
        self._loop.again(item)

    def _not_done(self, item: Item) -> None:
        """It is to be sent, unless nobody needs it any more."""
        item.now(unsure=False)
        if item.is_outdated:
            self._settle(item, "")

    def _settle(self, item: Item, outcome: str | ChatError) -> None:
        if isinstance(outcome, ChatError):
            log.warning("the chat refused an operation in %s: %s", item.channel, outcome.code)
        self._items.settle(item, outcome)
        self._loop.leave(item)

    def _waiting(self, item: Item) -> list[Item]:
        """What waits in its line."""
        return [each for each in self._loop.waits(item.line) if isinstance(each, Item)]


class Recovery:
    """Nothing is given up but what the chat refuses for good."""

    def __init__(self, loop: Loop, authority: Authority, channels: Channels, rng: Random) -> None:
        self._loop = loop
        self._authority = authority
        self._channels = channels
        self._rng = rng

    def went_well(self, item: Item) -> None:
        """A call went through."""
        self._authority.refusals = 0
        self._channels.accepted(item.channel)
        if isinstance(item.operation, React):
            self._loop.marked(item.line, there=not item.operation.remove)

    def failed(self, item: Item, error: ChatError) -> bool:
        """Whether it is called again."""
        wait_s = 0.0
        match error:
            case ChatRateLimitedError():
                self._loop.pause(item.call, item.channel, error.retry_after_s)
            case ChatAuthError():
                self._authority.lost(error)
            case ChatUnreachableError() | ChatOutcomeUnknownError():
                wait_s = self._backoff_s(item, error)
            case _ if item.is_lasting and error.code in self._channels.closed:
                self._channels.refused(item.channel, error.code)
            case _ if item.place and error.code == "message_not_found":
                # Somebody took away what was kept for it.
                item.place = ""
                item.now()
                wait_s = self._backoff_s(item, error)
            case _ if not _simplify(item, error):
                return False
        self._loop.again(item, wait_s)
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
            self._loop.marked(item.line, there=None)
        return max(wait_s, LOOK_DELAY_S)


def _simplify(item: Item, error: ChatError) -> bool:
    """Too long, blocks or a file that the chat dislikes: once more as short plain text, so that people are told."""
    simple = None if item.is_simplified else instead(item.operation, error.code)
    if simple is None:
        return False
    item.now(simple)
    item.is_simplified = True
    return True
