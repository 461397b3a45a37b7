"""The chats that are served, each with its own way out. Here alone it is decided which of them a channel belongs to.

What is done in a thread is shown under it while it lasts (Slack: assistant.threads.setStatus), best effort and without
a record. A chat that has no such line, or refuses it, shows none: the progress message tells it, too.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, Self

from codebutler.chat.delivery.sender import Sender
from codebutler.chat.port import ABOUT_A_PLACE, ChatPort, History, HistoryPage, StatusLine
from codebutler.config.channels import ChatName, chat_of
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError
from codebutler.domain.model import Operation, Quoted


class ConnectionStatus(Protocol):
    """How a connection is; a dataclass, of which each chat tells more. ``trouble`` is "" while all is well."""

    @property
    def state(self) -> str:
        """``connected`` or not, in a word."""

    @property
    def trouble(self) -> str:
        """What is wrong, and what to do."""


class ChatConnection(Protocol):
    """Our presence in a chat: brings its events to the intake. ``connected`` is set once the first try has worked."""

    @property
    def connected(self) -> asyncio.Event:
        """Set for good."""

    @property
    def status(self) -> ConnectionStatus:
        """How it is now."""

    async def run(self) -> None:
        """Until ``stop``, or until trying again is pointless. Raises ChatAuthError if the chat refuses a token at the
        start."""

    async def stop(self) -> None:
        """Take no more events; those being committed are finished."""

    def look_again(self) -> None:
        """There are other channels now, or something may have been missed."""


@dataclass(frozen=True, kw_only=True)
class ServedChat:
    """One chat, the queue of what is sent to it, and the line under its threads."""

    name: ChatName
    chat: ChatPort
    sender: Sender
    statuses: StatusBoard


class Chats:
    """All of them. Where a channel says enough, they are asked like one Sender."""

    def __init__(self, chats: Iterable[ServedChat]) -> None:
        self._by_name = {each.name: each for each in chats}

    def __iter__(self) -> Iterator[ServedChat]:
        return iter(self._by_name.values())

    def named(self, name: ChatName) -> ServedChat:
        """The chat of that name, which is served."""
        return self._by_name[name]

    def of(self, channel: str) -> ServedChat:
        """The chat of a channel. Raises ChatError where that is not served."""
        name = chat_of(channel)
        if name not in self._by_name:
            raise ChatError(f"{name} is not connected: run `codebutler setup`", "not_connected")
        return self._by_name[name]

    async def submit(
        self, channel: str, op_id: str, operation: Operation, *, unsure: bool = False, lasting: bool = False
    ) -> str:
        """Do an operation in a channel, by its chat's Sender. Raises ChatError."""
        sender = self.of(channel).sender
        return await sender.submit(channel, op_id, operation, unsure=unsure, lasting=lasting)

    async def history(
        self, channel: str, *, thread_ts: str | None = None, since_s: float = 0.0, cursor: str = ""
    ) -> HistoryPage:
        """A page of what was said in a channel, by its chat's Sender. Raises ChatError."""
        sender = self.of(channel).sender
        return await sender.history(channel, thread_ts=thread_ts, since_s=since_s, cursor=cursor)

    async def workspace_url(self) -> str:
        """Where links to Slack's messages lead; "" without Slack."""
        slack = self._by_name.get("Slack")
        return await slack.sender.workspace_url() if slack else ""

    def has_history(self, channel: str) -> bool:
        """Whether what was said in a channel can be fetched again."""
        return self.of(channel).chat.capabilities.history is not None

    def trouble(self, channel: str) -> str:
        """Why nothing can be sent to the chat of that channel now; "" while all is well."""
        return self.of(channel).sender.trouble

    @property
    def pending(self) -> int:
        """How many operations wait or are under way in all of them."""
        return sum(each.sender.pending for each in self)

    async def drain(self) -> None:
        """Wait until nothing is pending. Put a deadline around it."""
        await asyncio.gather(*(each.sender.drain() for each in self))


MOST_QUOTED = 50
THREAD_PAGES = 5
QUOTED_CHARS = 4_000
"""Of one message."""
PACE_S = 0.2
"""Between two calls; Slack allows 600 a minute for an app."""
MAX_WAITING = 500
MAX_CHARS = 200

log = logging.getLogger("codebutler.chat.chats")


class StatusBoard:
    """An async context manager; leaving it stops at once. ``redact`` sees every text last."""

    def __init__(self, line: StatusLine | None, clock: Clock, redact: Callable[[str], str]) -> None:
        self._line = line
        self._clock = clock
        self._redact = redact
        self._waiting: dict[tuple[str, str], str] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._work(), name="status board")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def show(self, channel: str, thread_ts: str, text: str) -> None:
        """Show ``text`` under the thread; "" takes away what is there."""
        known = (channel, thread_ts) in self._waiting
        if self._line is None or (not known and len(self._waiting) >= MAX_WAITING):
            return
        self._waiting[channel, thread_ts] = text
        self._news.set()

    async def _work(self) -> None:
        while True:
            await self._news.wait()
            if not self._waiting:
                self._news.clear()
                continue
            (channel, thread_ts), text = next(iter(self._waiting.items()))
            del self._waiting[channel, thread_ts]
            if self._line is not None:
                await self._clock.sleep(await self._show(self._line, channel, thread_ts, text))

    async def _show(self, line: StatusLine, channel: str, thread_ts: str, text: str) -> float:
        """Returns the seconds until the next call."""
        try:
            await line.show_status(channel, thread_ts, self._redact(text)[:MAX_CHARS])
        except ChatRateLimitedError as error:
            return error.retry_after_s
        except ChatUnreachableError:
            return PACE_S
        except ChatError as error:
            if error.code not in ABOUT_A_PLACE:
                self._line = None
                self._waiting.clear()
                log.info("no status is shown under threads: %s", error)
        return PACE_S


async def read_thread(
    reader: History, channel: str, thread_ts: str, before: str, is_heard: Callable[[str], bool]
) -> tuple[tuple[Quoted, ...], int]:
    """The thread's first message and the newest ones that sort before ``before``, oldest first, without our own; and
    how many in between are left out. ``is_heard`` says whether a user may instruct agents here. Raises ChatError."""
    first: Quoted | None = None
    latest: deque[Quoted] = deque(maxlen=MOST_QUOTED - 1)
    seen = 0
    cursor = ""
    for _ in range(THREAD_PAGES):
        page = await reader.history(channel, thread_ts=thread_ts, cursor=cursor)
        for message in page.messages:
            if not message.text.strip() or message.is_ours or not "" < message.order < before:
                continue
            quoted = Quoted(
                ts=message.ts,
                user=message.user,
                name=message.name,
                text=message.text[:QUOTED_CHARS],
                allowed=message.is_person and is_heard(message.user),
            )
            seen += 1
            if first is None:
                first = quoted
            else:
                latest.append(quoted)
        if not (cursor := page.next_cursor):
            break
    said = (first, *latest) if first is not None else ()
    return said, seen - len(said)
