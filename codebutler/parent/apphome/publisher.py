"""Publishes App Home to whoever has opened it, when it is opened and when something has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from codebutler.chat.layout import Section
from codebutler.chat.port import HomePage
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, StoreError
from codebutler.domain.message import every_text
from codebutler.intake.notes import Notes
from codebutler.parent.apphome.turns import LatestTurns
from codebutler.parent.apphome.view import RepoCard, home, not_served, stranger
from codebutler.text.markup import with_real_links

PACE_S = 3.0
"""Changes within it are one publication; Slack allows views.publish 100 times a minute and more for an app."""
MAX_READERS = 100
READERS = "home.readers"

log = logging.getLogger("codebutler.parent.apphome")


@dataclass(frozen=True, slots=True)
class HomeSources:
    """The workers' newest ``turns``, the ``cards`` that a user may see (None for a stranger), what is wrong with the
    chat ("" if nothing is), and the key that says who may use it."""

    turns: LatestTurns
    cards: Callable[[str], list[RepoCard] | None]
    trouble: Callable[[], str]
    key: str = "slack.allowedUsers"


class AppHome:
    """``run`` is its life. Who reads outlives us. A chat without homes shows none."""

    def __init__(
        self,
        board: HomePage | None,
        notes: Notes,
        sources: HomeSources,
        clock: Clock,
        redact: Callable[[str], str],
        workspace_url: Callable[[], Awaitable[str]],
    ) -> None:
        self._board = board
        self._notes = notes
        self._sources = sources
        self._clock = clock
        self._redact = redact
        self._workspace_url = workspace_url
        self._readers: list[str] = []
        self._due: set[str] = set()
        self._vain: set[str] = set()
        self._shown: dict[str, list[Section]] = {}
        self._news = asyncio.Event()
        self._unkept = False

    def opened(self, user: str) -> None:
        """Somebody looks at our home."""
        self._readers = [user, *(each for each in self._readers if each != user)][:MAX_READERS]
        self._shown.pop(user, None)
        self._due.add(user)
        self._unkept = True
        self._news.set()

    def vain(self, user: str) -> None:
        """They pressed a button of what is not served any more: they see that, and what is left."""
        self._vain.add(user)
        self.opened(user)

    def changed(self) -> None:
        """Something that homes show has changed."""
        self._due.update(self._readers)
        self._news.set()

    async def run(self) -> None:
        """Until cancelled. A home that cannot be published is shown by the next change."""
        await self._restore()
        while True:
            await self._news.wait()
            self._news.clear()
            await self._keep()
            while self._due:
                await self._publish(self._due.pop())
            await self._clock.sleep(PACE_S)

    async def _restore(self) -> None:
        try:
            await self._sources.turns.restore()
            known = msgspec.json.decode(await self._notes.note(READERS) or "[]", type=list[str])
            self._readers += [user for user in known if user not in self._readers]
        except (StoreError, msgspec.DecodeError) as error:
            log.warning("App Home begins anew: %s", error)

    async def _keep(self) -> None:
        try:
            await self._sources.turns.keep()
            if self._unkept:
                self._unkept = False
                await self._notes.keep_note(READERS, msgspec.json.encode(self._readers).decode())
        except StoreError as error:
            log.warning("App Home is not kept for the next start: %s", error)

    async def _publish(self, user: str) -> None:
        cards = self._sources.cards(user)
        parts = (
            stranger(self._sources.key)
            if cards is None
            else home(cards, self._sources.trouble(), self._clock.now())
        )
        if user in self._vain:
            parts = [*not_served(), *parts]
        url = await self._workspace_url()
        parts = [self._cleaned(part, url) for part in parts]
        if self._board is None or self._shown.get(user) == parts:
            return
        try:
            await self._board.publish_home(user, parts)
            self._shown[user] = parts
            self._vain.discard(user)
        except ChatRateLimitedError as error:
            self._due.add(user)
            await self._clock.sleep(error.retry_after_s)
        except ChatError as error:
            log.info("the home of %s could not be published: %s", user, error)

    def _cleaned(self, part: Section, url: str) -> Section:
        return every_text(part, lambda text: with_real_links(self._redact(text), url))
