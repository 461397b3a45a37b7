"""Operations on their way: looked for if they may have been done before, called when the loop says so, and called
again if that failed."""

from __future__ import annotations

import logging
from functools import partial

from msgspec.structs import replace

from codebutler.chat.delivery.items import Item, Items
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.delivery.outgoing import supersedes
from codebutler.chat.delivery.outlet import Outlet
from codebutler.chat.delivery.reading import Reader
from codebutler.chat.delivery.recovery import LOOK_DELAY_S, Recovery
from codebutler.clock import Clock
from codebutler.errors import ChatError
from codebutler.model import Post
from codebutler.process.tasks import Tasks

log = logging.getLogger("codebutler.chat.delivery")


class Attempts:
    """``add`` an item, and it is settled or refused one day."""

    def __init__(
        self, items: Items, loop: Loop, outlet: Outlet, reader: Reader, recovery: Recovery, clock: Clock
    ) -> None:
        self._items = items
        self._loop = loop
        self._outlet = outlet
        self._reader = reader
        self._recovery = recovery
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._look_from_s = clock.monotonic() + LOOK_DELAY_S

    def add(self, item: Item) -> None:
        """Send it when its turn comes. What it makes pointless is done."""
        waiting = item.waiting
        if supersedes(item.operation):
            for older in self._loop.waits(waiting.line):
                # It takes that one's age, so that a message edited all the time is not always last.
                waiting.number = older.number
                self._settle(self._items.of(older), "")
        if item.unsure:
            # Nothing that an earlier process of ours sent may still be under way inside the chat.
            waiting.from_s = self._look_from_s
        elif waiting.call == "react" and waiting.value == "sign" and not self._loop.knows(waiting.line):
            # Who sets a sign has not set it before.
            self._loop.marked(waiting.line, there=False)
        waiting.is_busy = item.is_doubtful
        self._loop.enter(waiting, partial(self._begin, item), partial(self._settle, item, ""))
        if item.is_doubtful:
            self._tasks.start(self._recall(item), name=f"recall of {item.op_id}")

    def outdate(self, item: Item) -> None:
        """Nobody needs it any more: if it has not been sent yet, it is left unsent."""
        if isinstance(item.operation, Post):
            item.operation = replace(item.operation, outdated=True)
            if not item.unsure and not item.waiting.is_busy:
                self._settle(item, "")

    async def close(self) -> None:
        """Stop at once."""
        await self._tasks.close(0)

    def _begin(self, item: Item) -> None:
        self._tasks.start(self._attempt(item), name=f"{item.waiting.call} in {item.channel}")

    async def _recall(self, item: Item) -> None:
        """What was never handed over was not said."""
        if not await self._outlet.may_have_sent(item):
            self._not_done(item)
        item.waiting.is_busy = False
        self._loop.wake()

    async def _attempt(self, item: Item) -> None:
        try:
            if item.must_look:
                await self._look(item)
            elif item.is_outdated:
                self._settle(item, item.place)
            elif item.must_keep_place:
                await self._outlet.keep_place(item)
                self._loop.again(item.waiting)
            else:
                result = await self._outlet.send(item)
                self._recovery.went_well(item)
                self._settle(item, result)
        except ChatError as error:
            if not self._recovery.failed(item, error):
                self._refuse(item, error)
            elif not item.unsure:
                self._not_done(item)
        except Exception as error:  # the others must survive whatever one operation brings
            log.exception("an operation could not be sent")
            self._refuse(item, ChatError(f"could not be sent: {type(error).__name__}", "internal"))

    async def _look(self, item: Item) -> None:
        """Look for all that may have been said in the conversation, once. Raises ChatError if it cannot be now."""
        waiting = [self._items.of(each) for each in self._loop.waits(item.waiting.line)]
        asked = {each.op_id: each for each in (item, *waiting) if each.must_look}
        found = await self._reader.find(item.channel, item.thread_ts, asked)
        for op_id, each in asked.items():
            if (ts := found.get(op_id)) is not None:
                self._settle(each, ts)
            else:
                self._not_done(each)
        self._loop.again(item.waiting)

    def _not_done(self, item: Item) -> None:
        """It is to be sent, unless nobody needs it any more."""
        item.now(unsure=False)
        if item.is_outdated:
            self._settle(item, "")

    def _settle(self, item: Item, result: str) -> None:
        self._items.settle(item, result)
        self._loop.leave(item.waiting)

    def _refuse(self, item: Item, error: ChatError) -> None:
        log.warning("the chat refused an operation in %s: %s", item.channel, error.code)
        self._items.refuse(item, error)
        self._loop.leave(item.waiting)
