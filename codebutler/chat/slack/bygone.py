"""Reads what was said in a channel or a thread, page by page, however long Slack takes to tell."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random

from codebutler.chat.port import History, Identity, Page
from codebutler.chat.slack.backoff import full_jitter_s
from codebutler.chat.slack.fields import PayloadError
from codebutler.chat.slack.payloads import shown
from codebutler.clock import Clock
from codebutler.errors import (
    ChatAuthError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.intake.catchup import Shown

MOST_MESSAGES = 10_000
BACKOFF_BASE_S = 1.0
BACKOFF_CAP_S = 60.0
PASSING = (ChatRateLimitedError, ChatUnreachableError, ChatOutcomeUnknownError, ChatAuthError)
"""Troubles that end by themselves, or with a new token."""

log = logging.getLogger("codebutler.chat.slack.catchup")


class Pages:
    """One channel's or thread's messages, page by page."""

    def __init__(self, page: Callable[[str], Awaitable[Page]], channel: str, me: Identity) -> None:
        self._page = page
        self._channel = channel
        self._me = me
        self._cursor = ""
        self._count = 0
        self.ended = False
        self.cut_off = False
        """There is more than MOST_MESSAGES: the rest is not read."""

    async def more(self) -> list[Shown]:
        """The next page. Raises ChatError for what Slack refuses for good."""
        page = await self._page(self._cursor)
        self._cursor = page.next_cursor
        self._count += len(page.messages)
        self.cut_off = bool(self._cursor) and self._count >= MOST_MESSAGES
        self.ended = self.cut_off or not self._cursor
        return _readable(page, self._channel, self._me)


class Bygone:
    """``pages`` and ``read`` are patient; ``glance`` is not."""

    def __init__(self, reader: History, clock: Clock, rng: Random) -> None:
        self._reader = reader
        self._clock = clock
        self._rng = rng

    def pages(self, channel: str, oldest: str, me: Identity) -> Pages:
        """The channel's messages after ``oldest``, the newest first."""
        return Pages(partial(self._page, channel, None, oldest), channel, me)

    async def read(self, channel: str, thread_ts: str, oldest: str, me: Identity) -> tuple[list[Shown], bool]:
        """The thread's messages after ``oldest``, and whether that is all of them. Raises ChatError for what
        Slack refuses for good."""
        pages = Pages(partial(self._page, channel, thread_ts, oldest), channel, me)
        found: list[Shown] = []
        while not pages.ended:
            found += await pages.more()
        return found, not pages.cut_off

    async def glance(self, channel: str, oldest: str, me: Identity) -> list[Shown]:
        """The first page of them. Raises ChatError."""
        return _readable(await self._reader.history(channel, oldest=oldest), channel, me)

    async def pause(self, failures: int) -> None:
        """Wait after the ``failures``-th failure in a row."""
        await self._clock.sleep(full_jitter_s(self._rng, failures, BACKOFF_BASE_S, BACKOFF_CAP_S))

    async def _page(self, channel: str, thread_ts: str | None, oldest: str, cursor: str) -> Page:
        """As often as it takes: a page that cannot be had now is had later."""
        failures = 0
        while True:
            try:
                return await self._reader.history(channel, thread_ts=thread_ts, oldest=oldest, cursor=cursor)
            except PASSING as error:
                failures += 1
                if failures == 1:
                    log.warning("catching up waits: %s", error)
                await self.pause(failures)


def _readable(page: Page, channel: str, me: Identity) -> list[Shown]:
    found = []
    for message in page.messages:
        try:
            found.append(shown(message, channel, me))
        except PayloadError as error:
            log.debug("a message of %s was left out: %s", channel, error)
    return found
