"""The one way out: every operation of every worker passes here, in order, within the limits, exactly once.

What is not known to have failed is looked for before it is done again; what cannot be sent now waits. Nothing
is given up but what Slack refuses for good.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

from codebutler.clock import Clock
from codebutler.errors import (
    ChatAuthError,
    ChatError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.model import Operation, Post, React, Update, Upload
from codebutler.process.killpoints import reached
from codebutler.slack.authority import Authority
from codebutler.slack.backoff import full_jitter_s
from codebutler.slack.limits import Limits
from codebutler.slack.lookup import LOOK_BACK_S, find_result
from codebutler.slack.outgoing import (
    TOO_MUCH,
    Lane,
    content_of,
    lane_of,
    method_of,
    plainer,
    redacted,
    supersedes,
    undoes,
)
from codebutler.slack.port import ChatPort, Page

BACKOFF_BASE_S = 0.5
BACKOFF_CAP_S = 30.0
# A request that timed out may still be under way inside Slack: looking at once would see too little.
LOOK_DELAY_S = 2.0
REMEMBERED = 10_000
# From here on redacting a file takes long enough to be felt by the loop.
LARGE_BYTES = 64 * 1024

log = logging.getLogger("codebutler.slack.sender")


@dataclass(slots=True, eq=False)
class _Item:
    channel: str
    op_id: str
    submitted: Operation
    operation: Operation
    unsure: bool
    result: asyncio.Future[str]
    failures: int = 0
    simplified: bool = False
    spared: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.channel, self.op_id


@dataclass(frozen=True, slots=True)
class _Done:
    result: str
    content: str


@dataclass(slots=True)
class _Queue:
    waiting: deque[_Item] = field(default_factory=deque)
    task: asyncio.Task[None] | None = None


class Sender:
    """Sends operations through a ChatPort. An async context manager; leaving it stops sending at once.

    ``redact`` sees every text last. While the token is refused everything waits, and ``trouble`` says so.
    """

    def __init__(
        self,
        chat: ChatPort,
        clock: Clock,
        redact: Callable[[str], str],
        *,
        rng: Random | None = None,
    ) -> None:
        self._chat = chat
        self._clock = clock
        self._redact = redact
        self._rng = rng or Random()  # noqa: S311 - spreads retries, guards nothing
        self._authority = Authority(chat, clock)
        self._limits = Limits()
        self._queues: dict[tuple[str, Lane], _Queue] = {}
        self._pending: set[_Item] = set()
        self._by_id: dict[tuple[str, str], _Item] = {}
        self._done: OrderedDict[tuple[str, str], _Done] = OrderedDict()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        tasks = [queue.task for queue in self._queues.values() if queue.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._authority.close()
        for item in list(self._pending):
            item.result.cancel()

    @property
    def pending(self) -> int:
        """How many operations wait or are under way."""
        return len(self._pending)

    @property
    def trouble(self) -> str:
        """Why nothing can be sent now; "" while all is well."""
        return self._authority.trouble

    async def drain(self) -> None:
        """Wait until nothing is pending. Put a deadline around it."""
        await self._idle.wait()

    async def submit(self, channel: str, op_id: str, operation: Operation, *, unsure: bool = False) -> str:
        """Do ``operation`` in ``channel``; returns the message's ts, the file's id, or "".

        The same ``op_id`` again, while it is under way or was done lately, is the same operation: doing an
        edit or a reaction twice could undo a later one. Only an edit or a reaction of other content is a new
        one. ``unsure``: it may have been done before, so
        look first. Raises ChatError when Slack refuses it for good, and
        ChatUnreachableError when the sender closes before it is known to be done.
        """
        done = self._done.get((channel, op_id))
        if done is not None and done.content in ("", content_of(operation)):
            return done.result
        item = self._by_id.get((channel, op_id))
        if item is None or (item.submitted != operation and not isinstance(operation, Post | Upload)):
            item = self._enqueue(channel, op_id, operation, unsure)
        try:
            return await asyncio.shield(item.result)
        except asyncio.CancelledError:
            if self._closed and item.result.cancelled():
                raise ChatUnreachableError("the sender was closed before this was sent", "closed") from None
            raise

    async def history(
        self, channel: str, *, thread_ts: str | None = None, oldest: str = "", cursor: str = ""
    ) -> Page:
        """A page of messages, as in the port, once the rate limits allow it. Raises ChatError as the port."""
        method = "conversations.history" if thread_ts is None else "conversations.replies"
        wait_s = self._limits.take(method, channel, self._clock.monotonic())
        while wait_s > 0:
            await self._clock.sleep(wait_s)
            wait_s = self._limits.paused_s(method, channel, self._clock.monotonic())
        try:
            return await self._chat.history(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor)
        except ChatRateLimitedError as error:
            self._limits.pause(method, channel, error.retry_after_s, self._clock.monotonic())
            raise

    def _enqueue(self, channel: str, op_id: str, operation: Operation, unsure: bool) -> _Item:
        if self._closed:
            raise ChatUnreachableError("the sender is closed", "closed")
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        item = _Item(channel, op_id, operation, operation, unsure, result)
        self._pending.add(item)
        self._by_id[item.key] = item
        self._idle.clear()
        lane = lane_of(operation)
        queue = self._queues.setdefault((channel, lane), _Queue())
        self._spare(item, queue)
        for place, older in enumerate(queue.waiting):
            if supersedes(operation, older.operation):
                # Takes the older one's place, so that a message edited all the time is not always last.
                queue.waiting[place] = item
                self._settle(older, "")
                break
        else:
            queue.waiting.append(item)
        if queue.task is None:
            queue.task = asyncio.create_task(self._work(channel, lane, queue), name=f"slack-{lane}-{channel}")
        return item

    def _spare(self, item: _Item, queue: _Queue) -> None:
        """A reaction that waits and its removal need not be sent, neither of them.

        Both keep their places: told done in another order than they came, a worker's death in between would
        leave the reaction to be set without its removal.
        """
        related = (older for older in reversed(queue.waiting) if undoes(item.operation, older.operation))
        older = next(related, None)
        if older is not None and not older.unsure:
            older.spared = item.spared = True

    async def _work(self, channel: str, lane: Lane, queue: _Queue) -> None:
        """Empty one lane, then end: a quiet channel costs nothing."""
        while (head := self._head(queue)) is not None:
            await self._claim(head)
            # Taken only now: what waits for its turn can still be superseded or spared.
            item = self._head(queue)
            if item is None or method_of(item.operation) != method_of(head.operation):
                continue  # it was made pointless, and what comes next needs a claim of its own
            queue.waiting.popleft()
            try:
                await self._send(item)
            except Exception as error:  # a lane must survive whatever one operation brings
                log.exception("an operation could not be sent")
                self._refuse(item, ChatError(f"could not be sent: {type(error).__name__}", "internal"))
        queue.task = None
        del self._queues[channel, lane]

    def _head(self, queue: _Queue) -> _Item | None:
        """The next operation that has to be sent; what is spared before it is done here."""
        while queue.waiting and queue.waiting[0].spared:
            self._settle(queue.waiting.popleft(), "")
        return queue.waiting[0] if queue.waiting else None

    async def _claim(self, item: _Item) -> None:
        """Wait until the rate limits and the token allow a call for ``item``."""
        method = method_of(item.operation)
        wait_s = self._limits.take(method, item.channel, self._clock.monotonic())
        while wait_s > 0:
            await self._clock.sleep(wait_s)
            wait_s = self._limits.paused_s(method, item.channel, self._clock.monotonic())
        await self._authority.wait()

    async def _send(self, item: _Item) -> None:
        """Try until it is done or refused for good."""
        if isinstance(item.operation, Upload) and len(item.operation.content) > LARGE_BYTES:
            item.operation = await asyncio.to_thread(redacted, item.operation, self._redact)
        else:
            item.operation = redacted(item.operation, self._redact)
        while not item.result.done():
            try:
                reached("post.before")
                result = await self._attempt(item)
                reached("post.after")
            except ChatError as error:
                if not await self._recover(item, error):
                    return
                await self._claim(item)
            else:
                self._authority.proved()
                self._settle(item, result)

    async def _attempt(self, item: _Item) -> str:
        operation = item.operation
        if item.unsure and isinstance(operation, Post | Upload):
            if (found := await self._find(item, operation)) is not None:
                return found
            item.unsure = False
        match operation:
            case Post():
                return await self._chat.post(item.channel, operation, item.op_id)
            case Update():
                await self._chat.update(item.channel, operation, item.op_id)
            case React():
                await self._chat.react(item.channel, operation)
            case Upload():
                return await self._chat.upload(item.channel, operation)
        return ""

    async def _find(self, item: _Item, operation: Post | Upload) -> str | None:
        """Raises ChatError when Slack cannot be asked now; where it refuses to tell, nothing is found."""
        bot_id = await self._authority.bot_id()
        oldest = f"{self._clock.now().timestamp() - LOOK_BACK_S:.6f}" if operation.thread_ts is None else ""

        async def read(cursor: str) -> Page:
            return await self.history(
                item.channel, thread_ts=operation.thread_ts, oldest=oldest, cursor=cursor
            )

        try:
            return await find_result(read, item.op_id, operation, bot_id)
        except (ChatAuthError, ChatRateLimitedError, ChatUnreachableError, ChatOutcomeUnknownError):
            raise
        except ChatError as error:
            log.warning("cannot look for an earlier attempt in %s: %s", item.channel, error.code)
            return None

    async def _recover(self, item: _Item, error: ChatError) -> bool:
        """Prepare another attempt, or settle ``item`` as refused and return False."""
        match error:
            case ChatRateLimitedError():
                now_s = self._clock.monotonic()
                self._limits.pause(method_of(item.operation), item.channel, error.retry_after_s, now_s)
            case ChatAuthError():
                self._authority.lost(error)
            case ChatUnreachableError() | ChatOutcomeUnknownError():
                await self._back_off(item, error)
            case _:
                return self._simplify(item, error)
        return True

    async def _back_off(self, item: _Item, error: ChatError) -> None:
        item.failures += 1
        if item.failures == 1:
            log.warning("%s; trying again", error)
        wait_s = full_jitter_s(self._rng, item.failures, BACKOFF_BASE_S, BACKOFF_CAP_S)
        if isinstance(error, ChatOutcomeUnknownError):
            item.unsure = True
            wait_s = max(wait_s, LOOK_DELAY_S)
        await self._clock.sleep(wait_s)

    def _simplify(self, item: _Item, error: ChatError) -> bool:
        """Too long, or blocks that Slack dislikes: once more as short plain text, so that an answer comes."""
        simple = plainer(item.operation) if error.code in TOO_MUCH and not item.simplified else None
        if simple is None:
            log.warning("Slack refused an operation in %s: %s", item.channel, error.code)
            self._refuse(item, error)
            return False
        item.operation, item.simplified = simple, True
        return True

    def _settle(self, item: _Item, result: str) -> None:
        self._forget(item)
        self._done[item.key] = _Done(result, content_of(item.submitted))
        self._done.move_to_end(item.key)
        if len(self._done) > REMEMBERED:
            self._done.popitem(last=False)
        if not item.result.done():
            item.result.set_result(result)

    def _refuse(self, item: _Item, error: ChatError) -> None:
        self._forget(item)
        if not item.result.done():
            item.result.set_exception(error)
            item.result.exception()  # read, so that a caller who has gone leaves no warning behind

    def _forget(self, item: _Item) -> None:
        self._pending.discard(item)
        if self._by_id.get(item.key) is item:
            del self._by_id[item.key]
        if not self._pending:
            self._idle.set()
