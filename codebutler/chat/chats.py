"""The connected chats, each with its own queue of outgoing calls and its status line. This is the only place that
decides which chat a channel belongs to.

A status line under a thread shows what is being done there, best effort and unrecorded. A chat that has no such line,
or refuses it, shows none: the progress message says the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Protocol, Self

from msgspec import Struct

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import ABOUT_A_PLACE, ChatPort, History, HistoryPage, StatusLine
from codebutler.config.chats import ChatName, chat_of, message_url
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import Operation, Quoted
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef
from codebutler.text.markup import Addresses

MOST_QUOTED = 50
THREAD_PAGES = 5
QUOTED_CHARS = 4_000
"""How much of one message is quoted, in characters."""
PACE_S = 0.2
"""The minimum between two calls."""
MAX_WAITING, MAX_PER_CHANNEL = 500, 50
MAX_CHARS = 200
SEARCHED_CHARS = 10 * MAX_CHARS
"""A worker decides how long a status is, and searching it for secrets holds up everybody."""

log = logging.getLogger("codebutler.chat.chats")


class ConnectionStatus(Protocol):
    """The state of a connection; each chat's dataclass adds more. ``trouble`` is "" while all is well."""

    @property
    def state(self) -> str:
        """``connected`` or not, in a word."""

    @property
    def trouble(self) -> str:
        """What is wrong, and what to do."""


class ChatConnection(Protocol):
    """Our connection to a chat: brings its events to the intake. ``connected`` is set once the first attempt has
    succeeded."""

    @property
    def connected(self) -> asyncio.Event:
        """Set once, and never cleared."""

    @property
    def status(self) -> ConnectionStatus:
        """Its state now."""

    async def run(self) -> None:
        """Until ``stop``, or until retrying is pointless. Raises ChatAuthError if the chat refuses a token at the
        start."""

    async def stop(self) -> None:
        """Accept no more events; finish those being committed."""

    def look_again(self) -> None:
        """The channels have changed, or something may have been missed."""


class ServedChat(Struct, frozen=True, kw_only=True):
    """One chat, its queue of outgoing calls, and the status line under its threads."""

    name: ChatName
    chat: ChatPort
    sender: Sender
    statuses: StatusBoard


class Chats:
    """All chats. Where the channel identifies the chat, they are used like one Sender."""

    def __init__(self, chats: Iterable[ServedChat]) -> None:
        self._by_name = {each.name: each for each in chats}

    def __iter__(self) -> Iterator[ServedChat]:
        return iter(self._by_name.values())

    def named(self, name: ChatName) -> ServedChat:
        """The connected chat of that name."""
        return self._by_name[name]

    def of(self, channel: ConversationRef) -> ServedChat:
        """The chat of a channel. Raises ChatError if it is not connected."""
        name = chat_of(channel)
        if name not in self._by_name:
            raise ChatError(f"{name} is not connected: run `codebutler setup`", "not_connected")
        return self._by_name[name]

    async def submit(
        self,
        channel: ConversationRef,
        op_id: str,
        operation: Operation,
        *,
        unsure: bool = False,
        lasting: bool = False,
    ) -> MessageRef:
        """Do an operation in a channel, through its chat's Sender. Raises ChatError."""
        sender = self.of(channel).sender
        return await sender.submit(channel, op_id, operation, unsure=unsure, lasting=lasting)

    async def history(
        self,
        channel: ConversationRef,
        *,
        thread: MessageRef | None = None,
        since_s: float = 0.0,
        cursor: str = "",
    ) -> HistoryPage:
        """A page of a channel's messages, through its chat's Sender. Raises ChatError."""
        sender = self.of(channel).sender
        return await sender.history(channel, thread=thread, since_s=since_s, cursor=cursor)

    async def addresses(self) -> Addresses:
        """Finds where people see a message."""
        homes = {each.name: await each.sender.workspace_url() for each in self}
        return partial(self._address, homes)

    def _address(self, homes: Mapping[ChatName, str], channel: ConversationRef, ref: MessageRef) -> str:
        name = chat_of(channel)
        served = self._by_name.get(name)
        return message_url(served.sender.where(channel, ref) if served else channel, ref, homes.get(name, ""))

    def has_history(self, channel: ConversationRef) -> bool:
        """Whether a channel's history can be fetched."""
        return self.of(channel).chat.capabilities.history is not None

    def trouble(self, channel: ConversationRef) -> str:
        """Why nothing can be sent to that channel's chat now; "" while all is well."""
        return self.of(channel).sender.trouble

    @property
    def pending(self) -> int:
        """How many operations are waiting or in flight in all of them."""
        return sum(each.sender.pending for each in self)

    async def drain(self) -> None:
        """Wait until nothing is pending. Use it with a timeout."""
        await asyncio.gather(*(each.sender.drain() for each in self))


class StatusBoard:
    """An async context manager; leaving it stops at once. ``redact`` sees every text last."""

    def __init__(self, line: StatusLine | None, clock: Clock, redact: Callable[[str], str]) -> None:
        self._line = line
        self._clock = clock
        self._redact = redact
        self._waiting: dict[tuple[ConversationRef, MessageRef], str] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._work(), name="status board")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def show(self, channel: ConversationRef, thread: MessageRef, text: str) -> None:
        """Show ``text`` under the thread; "" removes it."""
        if self._line is None or not ((channel, thread) in self._waiting or self._has_room(channel)):
            return
        self._waiting[channel, thread] = text[:SEARCHED_CHARS]
        self._news.set()

    def _has_room(self, channel: ConversationRef) -> bool:
        """Whether another thread of the channel may wait: no channel keeps the others from being shown."""
        own = sum(place == channel for place, _ in self._waiting)
        return own < MAX_PER_CHANNEL and len(self._waiting) < MAX_WAITING

    async def _work(self) -> None:
        while True:
            await self._news.wait()
            if not self._waiting:
                self._news.clear()
                continue
            (channel, thread), text = next(iter(self._waiting.items()))
            del self._waiting[channel, thread]
            if self._line is None:
                continue
            pause_s = PACE_S
            try:
                await self._line.show_status(channel, thread, self._redact(text)[:MAX_CHARS])
            except ChatRateLimitedError as error:
                pause_s = error.retry_after_s
            except ChatUnreachableError:
                pass
            except ChatError as error:
                if error.code not in ABOUT_A_PLACE:
                    self._line = None
                    self._waiting.clear()
                    log.info("no status is shown under threads: %s", error)
            await self._clock.sleep(pause_s)


async def read_thread(
    reader: History,
    channel: ConversationRef,
    thread: MessageRef,
    before: MessageRef,
    may_instruct: Callable[[PersonRef], bool],
) -> tuple[tuple[Quoted, ...], int]:
    """The thread's first message and the newest ones that sort before ``before``, oldest first, without our own; and
    how many in between are left out. ``may_instruct``: whether a user may instruct agents here. Raises ChatError."""
    first: Quoted | None = None
    latest: deque[Quoted] = deque(maxlen=MOST_QUOTED - 1)
    seen = 0
    cursor = ""
    for _ in range(THREAD_PAGES):
        page = await reader.history(channel, thread=thread, cursor=cursor)
        for message in page.messages:
            if not message.text.strip() or message.is_ours or not "" < message.order < before:
                continue
            quoted = Quoted(
                ref=message.ref,
                user=message.user,
                name=message.name,
                text=message.text[:QUOTED_CHARS],
                allowed=message.is_person and may_instruct(message.user),
            )
            seen += 1
            if first is None:
                first = quoted
            else:
                latest.append(quoted)
        if not (cursor := page.next_cursor):
            break
    quotes = (first, *latest) if first is not None else ()
    return quotes, seen - len(quotes)
