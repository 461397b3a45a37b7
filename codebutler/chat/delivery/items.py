"""What is to be sent and what was sent lately: one item for each operation, told done once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from codebutler.chat.delivery.outgoing import about, call_of
from codebutler.chat.delivery.planner import Line, Waiting
from codebutler.domain.errors import ChatError, ChatUnreachableError
from codebutler.domain.model import Operation, Post, React, Update, Upload

REMEMBERED = 10_000

Key = tuple[str, str]


@dataclass(slots=True, eq=False, kw_only=True)
class Item(Waiting):
    """An operation on its way. ``submitted`` is as it came, ``operation`` as it leaves, once ``is_clean``; ``unsure``:
    it may have been done before, and ``can_look``: that can be found out. ``step``: what its call is for.

    ``file_id`` is an upload's, once there is one; ``place`` the ts of the message that is kept for a post, and becomes
    it.
    """

    op_id: str
    submitted: Operation
    operation: Operation
    result: asyncio.Future[str]
    unsure: bool
    can_look: bool
    step: Literal["send", "look", "keep a place"] = "send"
    failures: int = 0
    is_clean: bool = False
    is_simplified: bool = False
    is_noted: bool = False
    file_id: str = ""
    place: str = ""

    def now(self, operation: Operation | None = None, *, unsure: bool | None = None) -> None:
        """It is other than it was: so the call it waits for may be another.

        A post that may have been said before is looked for, or a place is kept for it. Done twice, an edit or a mark is
        the same; a file is known by its id; and what one person alone sees is not found again.
        """
        self.operation = now = self.operation if operation is None else operation
        self.unsure = self.unsure if unsure is None else unsure
        self.step, self.call = "send", "update" if self.place else call_of(now)
        if self.unsure and isinstance(now, Post) and not now.only_for and not self.place:
            if self.can_look:
                self.step, self.call = "look", "replies" if now.thread_ts else "history"
            else:
                self.step = "keep a place"

    @property
    def is_outdated(self) -> bool:
        """Whether nobody needs it any more."""
        return isinstance(self.operation, Post) and self.operation.outdated

    @property
    def is_repeat(self) -> bool:
        """Whether it has to say that it may have been done before, as nobody can tell whether it was."""
        is_whispered = isinstance(self.operation, Post) and self.operation.only_for
        return self.unsure and bool(is_whispered or not self.can_look)


@dataclass(frozen=True, slots=True)
class _Done:
    """``content`` tells edits and marks of one id apart; of a post or a file the id says it all."""

    result: str
    content: int


class Items:
    """Everything that is pending, and the results of the last REMEMBERED operations."""

    def __init__(self, *, can_look: bool) -> None:
        self.is_closed = False
        self._can_look = can_look
        self._pending: dict[Item, None] = {}
        self._by_id: dict[Key, Item] = {}
        self._done: OrderedDict[Key, _Done] = OrderedDict()
        self._changed = asyncio.Event()

    @property
    def pending(self) -> Collection[Item]:
        """What waits or is under way."""
        return self._pending.keys()

    async def changed(self) -> None:
        """Wait until one is pending no more."""
        self._changed.clear()
        await self._changed.wait()

    def known(self, channel: str, op_id: str, operation: Operation) -> str | Item | None:
        """The result of the same operation if it was done lately, or its item if it is under way. An edit or a mark of
        other content is another operation."""
        key, by_content = (channel, op_id), isinstance(operation, Update | React)
        done = self._done.get(key)
        if done is not None and (not by_content or done.content == hash(operation)):
            return done.result
        item = self._by_id.get(key)
        return None if item is not None and by_content and item.submitted != operation else item

    def add(self, channel: str, op_id: str, operation: Operation, *, unsure: bool, lasting: bool) -> Item:
        """A new item. Raises ChatUnreachableError once closed."""
        if self.is_closed:
            raise ChatUnreachableError("the sender is closed", "closed")
        item = Item(
            call=call_of(operation),
            channel=channel,
            line=_line(channel, operation, lasting=lasting),
            value=operation.value,
            is_lasting=lasting,
            op_id=op_id,
            submitted=operation,
            operation=operation,
            result=asyncio.get_running_loop().create_future(),
            unsure=unsure,
            can_look=self._can_look,
        )
        item.now()
        self._pending[item] = None
        self._by_id[channel, op_id] = item
        return item

    def settle(self, item: Item, outcome: str | ChatError) -> None:
        """It is done, or will never be."""
        key = item.channel, item.op_id
        self._pending.pop(item, None)
        if self._by_id.get(key) is item:
            del self._by_id[key]
        self._changed.set()
        if isinstance(outcome, str):
            content = hash(item.submitted) if isinstance(item.submitted, Update | React) else 0
            self._done[key] = _Done(outcome, content)
            self._done.move_to_end(key)
            if len(self._done) > REMEMBERED:
                self._done.popitem(last=False)
            if not item.result.done():
                item.result.set_result(outcome)
        elif not item.result.done():
            item.result.set_exception(outcome)
            item.result.exception()  # read, so that a caller who has gone leaves no warning behind

    def close(self) -> None:
        """Nothing more is known of what is pending."""
        self.is_closed = True
        for item in self._pending:
            item.result.cancel()


def _line(channel: str, operation: Operation, *, lasting: bool) -> Line:
    """What keeps its order: what is said in a conversation, the edits of a message, a mark on a message. Each waits
    for nothing else; what the supervisor says, not even for a worker in a closed channel."""
    match operation:
        case Update():
            return channel, "edit", operation.target_ts
        case React():
            return channel, "mark", operation.target_ts, operation.name
        case Post() | Upload():
            return channel, "say" if lasting else "notice", about(operation)
