"""Posts, files and edits on their way: one lane for each channel and kind, in order, exactly once.

What is not known to have failed is looked for before it is done again; what cannot be sent now waits. Nothing
is given up but what Slack refuses for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.model import Post, Update, Upload
from codebutler.process.killpoints import reached
from codebutler.slack.gate import Gate
from codebutler.slack.items import Item, Items
from codebutler.slack.outgoing import (
    Lane,
    in_order,
    instead,
    lane_of,
    method_of,
    redacted,
    supersedes,
)
from codebutler.slack.reading import Reader
from codebutler.slack.uploads import Uploads

# From here on redacting a file takes long enough to be felt by the loop.
LARGE_BYTES = 64 * 1024

log = logging.getLogger("codebutler.slack.sender")


class Outlet(Protocol):
    """The chat, as far as these go."""

    async def post(self, channel: str, post: Post, op_id: str) -> str:
        """See ChatPort."""

    async def update(self, channel: str, update: Update, op_id: str) -> None:
        """See ChatPort."""

    def passed(self, channel: str, thread_ts: str) -> None:
        """A file was put into the thread."""


@dataclass(slots=True)
class _Queue:
    waiting: deque[Item] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class Lanes:
    """Sends items, each channel's posts and edits by themselves. ``redact`` sees every text last."""

    def __init__(
        self,
        chat: Outlet,
        gate: Gate,
        items: Items,
        reader: Reader,
        uploads: Uploads,
        redact: Callable[[str], str],
    ) -> None:
        self._chat = chat
        self._gate = gate
        self._items = items
        self._reader = reader
        self._uploads = uploads
        self._redact = redact
        self._queues: dict[tuple[str, Lane], _Queue] = {}
        self._large = asyncio.Semaphore(1)
        """To redact a file takes several times its size in memory: one at a time."""

    def add(self, item: Item) -> None:
        """Send it when its turn comes."""
        lane = lane_of(item.operation)
        queue = self._queues.setdefault((item.channel, lane), _Queue())
        for place, older in enumerate(queue.waiting):
            if supersedes(item.operation, older.operation):
                # Takes the older one's place, so that a message edited all the time is not always last.
                queue.waiting[place] = item
                self._items.settle(older, "")
                break
        else:
            queue.waiting.append(item)
            order = in_order([each.operation for each in queue.waiting])
            queue.waiting = deque(queue.waiting[at] for at in order)
        if queue.task is None:
            work = self._work(item.channel, lane, queue)
            queue.task = asyncio.create_task(work, name=f"slack-{lane}-{item.channel}")

    async def close(self) -> None:
        """Stop at once."""
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, channel: str, lane: Lane, queue: _Queue) -> None:
        """Empty one lane, then end: a quiet channel costs nothing."""
        while queue.waiting:
            head = queue.waiting[0]
            if not head.must_look:
                await self._gate.claim(method_of(head.operation), channel)
            # Taken only now: what waits for its turn can still be superseded.
            if method_of(queue.waiting[0].operation) != method_of(head.operation):
                continue  # what comes next needs a claim of its own
            item = queue.waiting.popleft()
            try:
                await self._send(item)
            except Exception as error:  # a lane must survive whatever one operation brings
                log.exception("an operation could not be sent")
                self._items.refuse(item, ChatError(f"could not be sent: {type(error).__name__}", "internal"))
        if lane == "posts":
            self._reader.forget(channel)
        queue.task = None
        del self._queues[channel, lane]

    async def _send(self, item: Item) -> None:
        """Try until it is done or refused for good."""
        if isinstance(item.operation, Upload) and len(item.operation.content) > LARGE_BYTES:
            async with self._large:
                item.operation = await asyncio.to_thread(redacted, item.operation, self._redact)
        else:
            item.operation = redacted(item.operation, self._redact)
        if item.unsure:
            await self._gate.calm()
        while not item.result.done():
            try:
                reached("post.before")
                result = await self._attempt(item)
                reached("post.after")
            except ChatError as error:
                if not await self._recover(item, error):
                    return
                if not item.must_look:
                    await self._gate.claim(method_of(item.operation), item.channel)
            else:
                self._gate.authority.proved()
                self._items.settle(item, result)

    async def _attempt(self, item: Item) -> str:
        operation = item.operation
        if item.unsure and isinstance(operation, Post):
            if (found := await self._find(item, operation)) is not None:
                return found
            item.unsure = False
            if isinstance(operation, Post) and operation.outdated:
                return ""
            await self._gate.claim(method_of(operation), item.channel)
        match operation:
            case Post():
                return await self._chat.post(item.channel, operation, item.op_id)
            case Update():
                await self._chat.update(item.channel, operation, item.op_id)
            case Upload():
                file_id = await self._uploads.send(item, operation)
                self._chat.passed(item.channel, operation.thread_ts or "")
                return file_id
        return ""

    async def _find(self, item: Item, operation: Post) -> str | None:
        """Raises ChatError when Slack cannot be asked now; where it refuses to tell, nothing is found."""
        try:
            return await self._reader.find(item.channel, item.op_id, operation)
        except (ChatAuthError, ChatRateLimitedError, ChatUnreachableError, ChatOutcomeUnknownError):
            raise
        except ChatError as error:
            log.warning("cannot look for an earlier attempt in %s: %s", item.channel, error.code)
            return None

    async def _recover(self, item: Item, error: ChatError) -> bool:
        """Prepare another attempt, or settle ``item`` as refused and return False."""
        match error:
            case ChatRateLimitedError():
                self._gate.pause(method_of(item.operation), item.channel, error.retry_after_s)
            case ChatAuthError():
                self._gate.authority.lost(error)
            case ChatUnreachableError() | ChatOutcomeUnknownError():
                item.failures += 1
                if isinstance(error, ChatOutcomeUnknownError):
                    item.unsure = True
                    self._reader.forget(item.channel)
                await self._gate.back_off(item.failures, error)
            case _:
                return self._simplify(item, error)
        return True

    def _simplify(self, item: Item, error: ChatError) -> bool:
        """Too long, blocks or a file that Slack dislikes: once more as short plain text, so that people are told."""
        simple = None if item.simplified else instead(item.operation, error.code)
        if simple is None:
            log.warning("Slack refused an operation in %s: %s", item.channel, error.code)
            self._items.refuse(item, error)
            return False
        item.operation, item.simplified = simple, True
        return True
