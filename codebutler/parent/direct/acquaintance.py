"""Gets to know the direct conversation of everybody who may use something, so that one begun while nothing runs is
caught up like a channel (Slack: conversations.open, which nobody notices)."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Protocol

from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError, StoreError
from codebutler.intake.journal import Journal
from codebutler.parent.direct.book import Book

ATTEMPTS = 3
RETRY_S = 30.0

log = logging.getLogger("codebutler.parent.direct")


class Board(Protocol):
    """The chat, as far as direct conversations go."""

    async def open_direct(self, user: str) -> str:
        """The ID of our conversation with the user, made at need. Raises ChatError."""


class Acquaintance:
    """``meet`` whoever may talk to us now. ``clock`` tells the chat's time."""

    def __init__(self, board: Board, book: Book, journal: Journal, clock: Clock) -> None:
        self._board = board
        self._book = book
        self._journal = journal
        self._clock = clock

    async def meet(self, users: Collection[str]) -> None:
        """Whoever is new among them. Who cannot be met now is met by their first message, or next time."""
        known = self._book.people
        for user in users:
            if user not in known:
                await self._meet(user)

    async def _meet(self, user: str) -> None:
        for _ in range(ATTEMPTS):
            wait_s = RETRY_S
            try:
                channel = await self._board.open_direct(user)
                # What is written from now on is ours, also what we do not hear of.
                await self._journal.open_gaps((channel,), self._clock.now())
                await self._journal.close_gap(channel)
                await self._book.meet(user, channel)
                return
            except ChatRateLimitedError as error:
                wait_s = error.retry_after_s
            except ChatUnreachableError:
                log.debug("the chat is not reached: %s is met later", user)
            except (ChatError, StoreError) as error:
                log.info("no direct message from %s yet: %s", user, error)
                return
            await self._clock.sleep(wait_s)
