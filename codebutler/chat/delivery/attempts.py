"""The operations under way: each is looked up first if it may have been sent before, sent when the loop says so, and
retried if that fails. The results of the last ones are remembered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from codebutler.chat.delivery.access import Authority, Channels, Reader
from codebutler.chat.delivery.handover import Handover, Item
from codebutler.chat.delivery.loop import Loop
from codebutler.chat.delivery.outgoing import instead, route
from codebutler.chat.delivery.planner import Line
from codebutler.domain.clock import Clock
from codebutler.domain.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.domain.model import Operation, Post, React, Update
from codebutler.domain.refs import NOWHERE, ConversationRef, MessageRef
from codebutler.platform.tasks import BoundedDict, Tasks, full_jitter_s

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 30.0
# A request that timed out may still be running inside the chat: looking right away could miss its result.
LOOK_DELAY_S = 2.0
REMEMBERED = 10_000

log = logging.getLogger("codebutler.chat.delivery")


class _Done(Struct, frozen=True):
    """``content`` distinguishes edits and marks with the same ID; for posts and files the ID is enough."""

    result: MessageRef
    content: int


class Attempts:
    """Sends operations, and retries everything except what the chat refuses for good: ``start`` one, and its item is
    eventually settled."""

    def __init__(
        self,
        loop: Loop,
        handover: Handover,
        access: tuple[Authority, Channels, Reader],
        clock: Clock,
        rng: Random,
        *,
        can_look: bool,
    ) -> None:
        self.is_closed = False
        self._loop = loop
        self._handover = handover
        self._authority, self._channels, self._reader = access
        self._rng = rng
        self._can_look = can_look
        self._pending: dict[Item, None] = {}
        self._by_id: dict[tuple[ConversationRef, str], Item] = {}
        self._done: BoundedDict[tuple[ConversationRef, str], _Done] = BoundedDict(REMEMBERED)
        self._changed = asyncio.Event()
        self._tasks = Tasks(lambda name, error: log.error("%s failed: %r", name, error))
        self._look_from_s = clock.monotonic() + LOOK_DELAY_S

    @property
    def pending(self) -> Collection[Item]:
        """What is waiting or in flight."""
        return self._pending.keys()

    async def changed(self) -> None:
        """Wait until an operation is no longer pending."""
        self._changed.clear()
        await self._changed.wait()

    def start(
        self, channel: ConversationRef, op_id: str, operation: Operation, *, unsure: bool, lasting: bool
    ) -> Item | MessageRef:
        """Send it when its turn comes. Returns its item, or the result if nothing is to be done: the same operation
        was done lately, or nobody needs it. An edit or mark with other content is another operation. Raises
        ChatUnreachableError once closed."""
        by_content = isinstance(operation, Update | React)
        is_outdated = isinstance(operation, Post) and operation.outdated
        done = self._done.get((channel, op_id))
        if done is not None and (not by_content or done.content == hash(operation)):
            return done.result
        item = self._by_id.get((channel, op_id))
        if item is not None and (not by_content or item.submitted == operation):
            if is_outdated and isinstance(item.operation, Post):
                item.operation, item.is_outdated = replace(item.operation, outdated=True), True
                if not item.unsure and not item.is_busy:
                    self._loop.drop(item)
            return item
        if is_outdated and not unsure:
            return NOWHERE
        if self.is_closed:
            raise ChatUnreachableError("the sender is closed", "closed")
        return self._add(channel, op_id, operation, unsure=unsure, lasting=lasting)

    def _add(
        self, channel: ConversationRef, op_id: str, operation: Operation, *, unsure: bool, lasting: bool
    ) -> Item:
        """Operations it makes pointless are dropped: of edits and marks, the last one counts.

        Posts in a conversation keep their order, as do edits of a message and a mark on one; otherwise operations are
        independent, and the supervisor's posts do not even wait for a worker's in a closed channel.
        """
        call, ref = route(operation)
        line: Line = channel, "say" if lasting else "notice", ref
        if isinstance(operation, Update):
            line = channel, "edit", ref
        elif isinstance(operation, React):
            line = channel, "mark", ref, operation.mark
        item = Item(
            call=call,
            channel=channel,
            line=line,
            value=operation.value,
            is_lasting=lasting,
            op_id=op_id,
            note=f"sent:{channel}:{op_id}",
            submitted=operation,
            operation=operation,
            result=asyncio.get_running_loop().create_future(),
            unsure=unsure,
            can_look=self._can_look,
            is_outdated=isinstance(operation, Post) and operation.outdated,
        )
        self._pending[item] = None
        self._by_id[channel, op_id] = item
        if unsure:
            item.now()
            # By then, nothing that an earlier process of ours sent is still running inside the chat.
            item.from_s = self._look_from_s
            item.is_busy = isinstance(operation, Post)
        elif item.call == "react" and item.value == "sign" and line not in self._loop.marks:
            # A sign is set once, so it was not set before.
            self._loop.marks[line] = False
        self._loop.enter(item, replaces=isinstance(operation, Update | React))
        self._tasks.start(self._carry_out(item), name=f"{item.call} {op_id} in {channel}")
        return item

    async def close(self) -> None:
        """Stop at once, and forget everything pending."""
        self.is_closed = True
        await self._tasks.close(0)
        for item in self._pending:
            item.result.cancel()

    async def _carry_out(self, item: Item) -> None:
        """Send it, once for each of its turns, until its outcome is known."""
        if item.unsure and isinstance(item.operation, Post):
            await self._recall(item)
        while not item.result.done() and item.turn is not None and await item.turn:
            try:
                if item.is_outdated and item.step != "look":
                    self._settle(item, item.place)
                elif item.step != "send":
                    await self._look_up(item)
                else:
                    ref = await self._handover.send(item)
                    self._authority.refusals = 0
                    if item.channel in self._channels.refusals:
                        self._channels.accepted(item.channel)
                    if isinstance(item.operation, React):
                        self._loop.marks[item.line] = not item.operation.remove
                    self._settle(item, ref)
            except ChatError as error:
                self._failed(item, error)
            except Exception as error:  # one operation's failure must not stop the others
                log.exception("an operation could not be sent")
                self._settle(item, ChatError(f"could not be sent: {type(error).__name__}", "internal"))
        if not item.result.done():
            self._settle(item, NOWHERE)  # it has become pointless

    async def _recall(self, item: Item) -> None:
        """What the journal knows of an earlier attempt."""
        if ref := await self._handover.recall(item):
            self._settle(item, ref)
        elif not item.unsure:
            self._not_done(item)
        item.is_busy = False
        self._loop.wake()

    async def _look_up(self, item: Item) -> None:
        """Look up, once, everything that may have been posted in the conversation; or announce that a repeat may
        follow. Raises ChatError if that fails now."""
        if item.step == "keep a place" and isinstance(item.operation, Post):
            await self._handover.keep_place(item, item.operation)
        else:
            others = (each for each in self._loop.waits(item.line) if isinstance(each, Item))
            unsure = {each.op_id: each for each in (item, *others) if each.step == "look"}
            _, thread = route(item.operation)
            found = await self._reader.find(item.channel, thread or None, unsure)
            for op_id, each in unsure.items():
                if (ref := found.get(op_id)) is not None:
                    self._settle(each, ref)
                else:
                    self._not_done(each)
        self._loop.again(item)

    def _not_done(self, item: Item) -> None:
        """Not sent before: send it, unless nobody needs it any more."""
        item.now(unsure=False)
        if item.is_outdated:
            self._settle(item, NOWHERE)

    def _settle(self, item: Item, outcome: MessageRef | ChatError) -> None:
        """It is done, or never will be."""
        key = item.channel, item.op_id
        self._pending.pop(item, None)
        if self._by_id.get(key) is item:
            del self._by_id[key]
        self._changed.set()
        if isinstance(outcome, ChatError):
            log.warning("the chat refused an operation in %s: %s", item.channel, outcome.code)
            if not item.result.done():
                item.result.set_exception(outcome)
                item.result.exception()  # read, so that a caller who has gone leaves no warning behind
        else:
            content = hash(item.submitted) if isinstance(item.submitted, Update | React) else 0
            self._done[key] = _Done(outcome, content)
            if not item.result.done():
                item.result.set_result(outcome)
        self._loop.leave(item)

    def _failed(self, item: Item, error: ChatError) -> None:
        """Call again when that may help; otherwise it is settled."""
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
                # Somebody deleted the placeholder message.
                item.place = NOWHERE
                item.now()
                wait_s = self._backoff_s(item, error)
            case _ if not item.is_simplified and (simple := instead(item.operation, error.code)) is not None:
                # It refused the length, the blocks or a file: send short plain text once, so that people are told.
                item.now(simple)
                item.is_simplified = True
            case _:
                self._settle(item, error)
                return
        self._loop.again(item, wait_s)
        if not item.unsure:
            self._not_done(item)

    def _backoff_s(self, item: Item, error: ChatError) -> float:
        item.failures += 1
        if item.failures == 1:
            log.warning("%s; trying again", error)
        wait_s = full_jitter_s(self._rng, item.failures, BACKOFF_BASE_S, BACKOFF_CAP_S)
        if not isinstance(error, ChatOutcomeUnknownError):
            return wait_s
        item.now(unsure=True)
        if isinstance(item.operation, React):
            self._loop.marks[item.line] = None
        return max(wait_s, LOOK_DELAY_S)
