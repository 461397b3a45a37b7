"""What is to be sent and what was sent lately: one item for each operation, told done once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from codebutler.errors import ChatError, ChatUnreachableError
from codebutler.model import Operation, Post, Upload
from codebutler.slack.outgoing import content_of

REMEMBERED = 10_000

Key = tuple[str, str]


@dataclass(slots=True, eq=False)
class Item:
    """An operation on its way. ``submitted`` is as it came, ``operation`` as it leaves; ``unsure``: it may have
    been done before. ``file_id`` is an upload's, once there is one."""

    channel: str
    op_id: str
    submitted: Operation
    operation: Operation
    unsure: bool
    result: asyncio.Future[str]
    failures: int = 0
    simplified: bool = False
    file_id: str = ""

    @property
    def must_look(self) -> bool:
        """Whether to look for it before it is sent: done twice, an edit or a reaction is the same."""
        return self.unsure and isinstance(self.operation, Post | Upload)

    @property
    def key(self) -> Key:
        """What makes it the same operation when it comes again."""
        return self.channel, self.op_id


@dataclass(frozen=True, slots=True)
class _Done:
    result: str
    content: str


class Items:
    """Everything that is pending, and the results of the last REMEMBERED operations."""

    def __init__(self) -> None:
        self.closed = False
        self._pending: set[Item] = set()
        self._by_id: dict[Key, Item] = {}
        self._done: OrderedDict[Key, _Done] = OrderedDict()
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        return len(self._pending)

    async def idle(self) -> None:
        """Wait until nothing is pending."""
        await self._idle.wait()

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

    def add(self, channel: str, op_id: str, operation: Operation, *, unsure: bool) -> Item:
        """A new item. Raises ChatUnreachableError once closed."""
        if self.closed:
            raise ChatUnreachableError("the sender is closed", "closed")
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        item = Item(channel, op_id, operation, operation, unsure, result)
        self._pending.add(item)
        self._by_id[item.key] = item
        self._idle.clear()
        return item

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
        self.closed = True
        for item in list(self._pending):
            item.result.cancel()

    def _forget(self, item: Item) -> None:
        self._pending.discard(item)
        if self._by_id.get(item.key) is item:
            del self._by_id[item.key]
        if not self._pending:
            self._idle.set()
