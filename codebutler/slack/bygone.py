"""Reads what was said in a channel or a thread, page by page, however long Slack takes to tell."""

from __future__ import annotations

import logging
from random import Random

from codebutler.clock import Clock
from codebutler.errors import (
    ChatAuthError,
    ChatOutcomeUnknownError,
    ChatRateLimitedError,
    ChatUnreachableError,
)
from codebutler.intake.catchup import Shown
from codebutler.slack.backoff import full_jitter_s
from codebutler.slack.fields import PayloadError
from codebutler.slack.payloads import shown
from codebutler.slack.port import History, Identity, Page

MAX_PAGES = 50
BACKOFF_BASE_S = 1.0
BACKOFF_CAP_S = 60.0
PASSING = (ChatRateLimitedError, ChatUnreachableError, ChatOutcomeUnknownError, ChatAuthError)
"""Troubles that end by themselves, or with a new token."""

log = logging.getLogger("codebutler.slack.catchup")


class Bygone:
    """``read`` is patient; ``glance`` is not."""

    def __init__(self, reader: History, clock: Clock, rng: Random) -> None:
        self._reader = reader
        self._clock = clock
        self._rng = rng

    async def read(
        self, channel: str, thread_ts: str | None, oldest: str, me: Identity
    ) -> tuple[list[Shown], bool]:
        """The messages after ``oldest``, and whether that is all of them. Raises ChatError for what Slack
        refuses for good."""
        found: list[Shown] = []
        cursor = ""
        for _ in range(MAX_PAGES):
            page = await self._page(channel, thread_ts, oldest, cursor)
            found += _readable(page, channel, me)
            cursor = page.next_cursor
            if not cursor:
                return found, True
        return found, False

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
