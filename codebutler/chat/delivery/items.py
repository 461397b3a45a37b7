"""What is to be sent and what was sent lately: one item for each operation, told done once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass

from codebutler.chat.delivery.outgoing import call_of, content_of, line_of
from codebutler.chat.delivery.planner import Waiting
from codebutler.errors import ChatError, ChatUnreachableError
from codebutler.model import Operation, Post, Upload

REMEMBERED = 10_000

Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class Item:
    """An operation on its way. ``submitted`` is as it came, ``operation`` as it leaves, once ``is_clean``; ``unsure``:
    it may have been done before, and ``can_look``: that can be found out. ``file_id`` is an upload's, once there is
    one; ``place`` the ts of the message that is kept for a post, and becomes it."""

    channel: str
    op_id: str
    submitted: Operation
    operation: Operation
    unsure: bool
    result: asyncio.Future[str]
    waiting: Waiting
    can_look: bool = True
    failures: int = 0
    is_clean: bool = False
    is_simplified: bool = False
    is_noted: bool = False
    file_id: str = ""
    place: str = ""

    @property
    def is_doubtful(self) -> bool:
        """Whether it may have been said before. Done twice, an edit or a mark is the same; a file has an id."""
        return self.unsure and isinstance(self.operation, Post)

    @property
    def must_look(self) -> bool:
        """Whether to look for it before it is sent. What one person alone sees is not found again."""
        return self.is_doubtful and self.can_look and not self.is_private

    @property
    def must_keep_place(self) -> bool:
        """Whether a place is to be kept for it before it is said again, as nobody can tell whether it was."""
        return self.is_doubtful and not self.can_look and not self.is_private and not self.place

    @property
    def is_private(self) -> bool:
        """Whether one person alone sees it."""
        return isinstance(self.operation, Post) and bool(self.operation.only_for)

    @property
    def is_repeat(self) -> bool:
        """Whether it has to say that it may have been done before."""
        return self.unsure and (self.is_private or not self.can_look)

    @property
    def is_outdated(self) -> bool:
        """Whether nobody needs it any more."""
        return isinstance(self.operation, Post) and self.operation.outdated

    @property
    def key(self) -> Key:
        """What makes it the same operation when it comes again."""
        return self.channel, self.op_id

    def now(self, operation: Operation | None = None, *, unsure: bool | None = None) -> None:
        """It is other than it was: so the call it waits for may be another."""
        self.operation = self.operation if operation is None else operation
        self.unsure = self.unsure if unsure is None else unsure
        if self.must_look:
            self.waiting.call = "replies" if self.thread_ts else "history"
        else:
            self.waiting.call = "update" if self.place else call_of(self.operation)

    @property
    def thread_ts(self) -> str | None:
        """The thread that a post goes to."""
        return self.operation.thread_ts if isinstance(self.operation, Post) else None


@dataclass(frozen=True, slots=True)
class _Done:
    result: str
    content: str


class Items:
    """Everything that is pending, and the results of the last REMEMBERED operations."""

    def __init__(self, *, can_look: bool) -> None:
        self.is_closed = False
        self._can_look = can_look
        self._pending: dict[Waiting, Item] = {}
        self._by_id: dict[Key, Item] = {}
        self._done: OrderedDict[Key, _Done] = OrderedDict()
        self._changed = asyncio.Event()

    @property
    def pending(self) -> Collection[Item]:
        """What waits or is under way."""
        return self._pending.values()

    async def changed(self) -> None:
        """Wait until one is pending no more."""
        self._changed.clear()
        await self._changed.wait()

    def done(self, channel: str, op_id: str, operation: Operation) -> str | None:
        """The result of the same operation if it was done lately."""
        done = self._done.get((channel, op_id))
        same = done is not None and done.content in ("", content_of(operation))
        return done.result if done is not None and same else None

    def waiting(self, channel: str, op_id: str, operation: Operation) -> Item | None:
        """The same operation if it is under way; an edit or a reaction of other content is another one."""
        item = self._by_id.get((channel, op_id))
        if item is not None and item.submitted != operation and not isinstance(operation, Post | Upload):
            return None
        return item

    def add(self, channel: str, op_id: str, operation: Operation, *, unsure: bool, lasting: bool) -> Item:
        """A new item. Raises ChatUnreachableError once closed."""
        if self.is_closed:
            raise ChatUnreachableError("the sender is closed", "closed")
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = Waiting(
            call=call_of(operation),
            channel=channel,
            line=line_of(channel, operation, lasting=lasting),
            value=operation.value,
            is_lasting=lasting,
        )
        item = Item(channel, op_id, operation, operation, unsure, result, waiting, self._can_look)
        item.now()
        self._pending[waiting] = item
        self._by_id[item.key] = item
        return item

    def of(self, waiting: Waiting) -> Item:
        """Whose call that is."""
        return self._pending[waiting]

    def settle(self, item: Item, result: str) -> None:
        """It is done."""
        self._forget(item)
        self._done[item.key] = _Done(result, content_of(item.submitted))
        self._done.move_to_end(item.key)
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)
        if not item.result.done():
            item.result.set_result(result)

    def refuse(self, item: Item, error: ChatError) -> None:
        """It will never be done."""
        self._forget(item)
        if not item.result.done():
            item.result.set_exception(error)
            item.result.exception()  # read, so that a caller who has gone leaves no warning behind

    def close(self) -> None:
        """Nothing more is known of what is pending."""
        self.is_closed = True
        for item in self._pending.values():
            item.result.cancel()

    def _forget(self, item: Item) -> None:
        self._pending.pop(item.waiting, None)
        if self._by_id.get(item.key) is item:
            del self._by_id[item.key]
        self._changed.set()
