"""Reactions on their way: what ``marks`` decides, done within the limits, each message by itself."""

from __future__ import annotations

import asyncio
import logging
from typing import TypeAlias

from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.model import React
from codebutler.process.killpoints import reached
from codebutler.slack.gate import Gate
from codebutler.slack.items import Item, Items
from codebutler.slack.marks import Mark, Marks, Step
from codebutler.slack.port import ChatPort

# A brief mark that could not be set for so long would only say what is past.
PATIENCE_S = 1.0
# One slow answer of Slack's must not hold up the marks of other channels.
CALLS_AT_ONCE = 8
METHODS: tuple[tuple[Step, str], ...] = (
    ("add", "reactions.add"),
    ("remove", "reactions.remove"),
    ("look", "reactions.get"),
)

ItemMark: TypeAlias = Mark[Item]

log = logging.getLogger("codebutler.slack.sender")


class Marking:
    """Brings reactions to where they are wanted; an item is settled when its mark is as the last one asked."""

    def __init__(self, chat: ChatPort, gate: Gate, items: Items) -> None:
        self._chat = chat
        self._gate = gate
        self._items = items
        self._marks: Marks[Item] = Marks()
        self._workers: dict[Step, asyncio.Task[None]] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(CALLS_AT_ONCE)

    def add(self, item: Item, react: React) -> None:
        """Bring the mark to where ``react`` wants it, or find that it is there."""
        mark = self._marks.ask(
            item.channel, react.target_ts, react.name, item, wanted=not react.remove, unsure=item.unsure
        )
        # Told later, so that whoever asked for the same mark before hears first: the other way round, a death in
        # between would leave a mark to be set without its removal.
        asyncio.get_running_loop().call_soon(self._move, mark)

    async def close(self) -> None:
        """Stop at once."""
        tasks = [*self._workers.values(), *self._calls]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _go_on(self) -> None:
        """Put off what has no room, and see that somebody does what can be done now."""
        self._put_off(self._marks.crowded())
        for step, method in METHODS:
            if step not in self._workers and self._marks.next(step) is not None:
                work = self._work(step, method)
                self._workers[step] = asyncio.create_task(work, name=f"slack-marks-{step}")

    async def _work(self, step: Step, method: str) -> None:
        """Do all there is of one kind, then end."""
        try:
            while (mark := self._marks.next(step)) is not None:
                wait_s = self._gate.take_s(method, mark.channel)
                if step == "add" and wait_s > PATIENCE_S:
                    self._put_off(self._marks.unhurried())
                await self._gate.waited(method, mark.channel, wait_s)
                await self._gate.authority.wait()
                await self._room.acquire()
                self._begin(step, method)
        finally:
            del self._workers[step]

    def _begin(self, step: Step, method: str) -> None:
        """Call for the mark that is first by now."""
        mark = self._marks.next(step)
        if mark is None:
            self._room.release()
            return
        self._marks.begin(mark)
        call = asyncio.create_task(self._call(step, method, mark), name=f"slack-{method}-{mark.channel}")
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, step: Step, method: str, mark: ItemMark) -> None:
        try:
            await self._attempt(step, mark)
        except ChatError as error:
            self._room.release()
            await self._recover(step, method, mark, error)
        except Exception as error:  # one mark's trouble must not end the others
            log.exception("a mark could not be set")
            self._room.release()
            self._refuse(mark, ChatError(f"could not be sent: {type(error).__name__}", "internal"))
        else:
            self._room.release()
            self._gate.authority.proved()
        mark.busy = False
        self._move(mark)

    def _move(self, mark: ItemMark) -> None:
        """Something about it has changed."""
        if not self._items.closed:
            self._done_if_right(mark)
            self._go_on()

    async def _attempt(self, step: Step, mark: ItemMark) -> None:
        if any(item.unsure for item in mark.waiters):
            await self._gate.calm()
        reached("post.before")
        if step == "look":
            me = await self._gate.authority.me()
            found = await self._chat.reactions(mark.channel, mark.ts)
            names = frozenset(name for name, users in found.items() if me.user_id in users)
            mark.there = mark.name in names
            for other in self._marks.found(mark.spot, names):
                self._done_if_right(other)
        else:
            remove = step == "remove"
            await self._chat.react(mark.channel, React(target_ts=mark.ts, name=mark.name, remove=remove))
            mark.there = not remove
        mark.failures = 0
        reached("post.after")

    async def _recover(self, step: Step, method: str, mark: ItemMark, error: ChatError) -> None:
        match error:
            case ChatRateLimitedError():
                self._gate.pause(method, mark.channel, error.retry_after_s)
            case ChatAuthError():
                self._gate.authority.lost(error)
            case ChatUnreachableError() | ChatOutcomeUnknownError():
                if isinstance(error, ChatOutcomeUnknownError):
                    mark.there = None
                mark.failures += 1
                await self._gate.back_off(mark.failures, error)
            case _ if step == "look":
                log.warning("cannot look at the marks in %s: %s", mark.channel, error.code)
                mark.there = True  # taking away what is not there does no harm
            case _:
                log.warning("Slack refused an operation in %s: %s", mark.channel, error.code)
                self._refuse(mark, error)

    def _refuse(self, mark: ItemMark, error: ChatError) -> None:
        """It cannot be brought to where it is wanted."""
        for item in mark.told():
            self._items.refuse(item, error)
        self._marks.drop(mark)

    def _put_off(self, marks: list[ItemMark]) -> None:
        """Nobody shall wait for a mark that says what is past when it comes."""
        for mark in marks:
            self._settle(self._marks.put_off(mark))

    def _done_if_right(self, mark: ItemMark) -> None:
        if mark.right:
            self._settle(mark.told())
            self._marks.drop(mark)

    def _settle(self, items: list[Item]) -> None:
        for item in items:
            self._items.settle(item, "")
