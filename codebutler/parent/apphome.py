"""Publishes App Home to people who opened it: at once, and after each change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from codebutler.chat.chats import Chats
from codebutler.chat.layout import Section
from codebutler.chat.port import HomePage
from codebutler.config.permission import Person, Where, may
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, StoreError
from codebutler.domain.refs import PersonRef
from codebutler.intake.records import Notes
from codebutler.intake.repos import Served
from codebutler.parent.apphome_page import UNSERVED, RepoCard, home, stranger
from codebutler.parent.parts import LatestTurns, Parts
from codebutler.platform.tasks import wait_for
from codebutler.supervisor.supervisor import RepoRow
from codebutler.supervisor.workers import Workers
from codebutler.text.markup import Addresses, linked
from codebutler.text.redact import every_text
from codebutler.text.wording import load

PACE_S = 3.0
"""Changes within this time are published together."""
MAX_READERS = 100
READERS = "home.readers"

log = logging.getLogger("codebutler.parent.apphome")

TROUBLED = {
    "quarantined": "its worker keeps failing: see `codebutler logs` on its machine",
    "stopped": "its worker is stopped: see `codebutler logs` on its machine",
}


class HomeSources(Struct, frozen=True):
    """The workers' newest ``turns``, the ``cards`` that a user may see (None for a stranger), the chat's
    problem ("" if it has none), and the key that says who may use it."""

    turns: LatestTurns
    cards: Callable[[PersonRef], list[RepoCard] | None]
    trouble: Callable[[], str]
    key: str


class AppHome:
    """Keeps everybody's App Home current; ``run`` until cancelled. Who has opened it is stored, so it outlives this
    process. In a chat without homes it does nothing."""

    def __init__(
        self,
        page: HomePage | None,
        notes: Notes,
        sources: HomeSources,
        clock: Clock,
        redact: Callable[[str], str],
        addresses: Callable[[], Awaitable[Addresses]],
    ) -> None:
        self._page = page
        self._notes = notes
        self._sources = sources
        self._clock = clock
        self._redact = redact
        self._addresses = addresses
        self._readers: list[PersonRef] = []
        self._due: set[PersonRef] = set()
        self._not_served: set[PersonRef] = set()
        self._shown: dict[PersonRef, list[Section]] = {}
        self._news = asyncio.Event()
        self._opened = asyncio.Event()
        self._unkept = False

    def opened(self, user: PersonRef) -> None:
        """Publish the page of a person who opened it."""
        self._readers = [user, *(each for each in self._readers if each != user)][:MAX_READERS]
        self._shown.pop(user, None)
        self._due.add(user)
        self._unkept = True
        self._opened.set()
        self._news.set()

    def not_served(self, user: PersonRef) -> None:
        """They pressed a button of a repository that is no longer served: show that, and the rest."""
        self._not_served.add(user)
        self.opened(user)

    def changed(self) -> None:
        """Publish all pages again: something that they show has changed."""
        self._due.update(self._readers)
        self._news.set()

    async def run(self) -> None:
        """Runs until cancelled. A home that cannot be published is published with the next change."""
        await self._restore()
        while True:
            await self._news.wait()
            self._news.clear()
            self._opened.clear()
            await self._keep()
            while self._due:
                await self._publish(self._due.pop())
            # Whoever opens it looks at an empty page until it is published.
            await wait_for(self._clock, self._opened, PACE_S)

    async def _restore(self) -> None:
        try:
            await self._sources.turns.restore()
            known = msgspec.json.decode(await self._notes.note(READERS) or "[]", type=list[PersonRef])
            self._readers += [user for user in known if user not in self._readers]
        except (StoreError, msgspec.DecodeError) as error:
            log.warning("cannot read App Home's saved state, starting empty: %s", error)

    async def _keep(self) -> None:
        try:
            await self._sources.turns.keep()
            if self._unkept:
                self._unkept = False
                await self._notes.keep_note(READERS, msgspec.json.encode(self._readers).decode())
        except StoreError as error:
            log.warning("cannot save App Home's state: %s", error)

    async def _publish(self, user: PersonRef) -> None:
        cards = self._sources.cards(user)
        parts = (
            stranger(self._sources.key)
            if cards is None
            else home(cards, self._sources.trouble(), self._clock.now())
        )
        if user in self._not_served:
            parts = [UNSERVED, *parts]
        address = await self._addresses()
        parts = [every_text(part, lambda text: self._redact(linked(text, address))) for part in parts]
        if self._page is None or self._shown.get(user) == parts:
            return
        try:
            await self._page.publish_home(user, parts)
            self._shown[user] = parts
            self._not_served.discard(user)
        except ChatRateLimitedError as error:
            self._due.add(user)
            await self._clock.sleep(error.retry_after_s)
        except ChatError as error:
            log.info("cannot publish App Home for %s: %s", user, error)


class Cards:
    """What each person may see of all repositories, right now."""

    def __init__(self, parts: Parts, supervisor: Workers, chats: Chats) -> None:
        self._parts = parts
        self._supervisor = supervisor
        self._chats = chats

    def of(self, user: PersonRef) -> list[RepoCard] | None:
        """A card for each repository that the user may talk to; None if there is none."""
        table, rows = self._parts.repos.table, {row.name: row for row in self._supervisor.rows()}
        cards = [
            self._card(served, rows.get(served.entry.name))
            for served in table.served
            if may(Person(user), "see", Where(served.config, served.channel_id)).allowed
        ]
        if not cards:
            return None
        absent = (
            RepoCard(each.entry.name, each.entry.channel_id, "stopped", (), each.problem)
            for each in table.absent
        )
        return [*cards, *absent]

    def _card(self, served: Served, row: RepoRow | None) -> RepoCard:
        name, channel = served.entry.name, served.channel_id
        state = row.worker.state if row else "stopped"
        return RepoCard(
            name=name,
            channel=channel,
            worker=state,
            turns=self._parts.turns.by_repo.get(name, ()),
            today=self._parts.budgets.words(name, self._parts.clock.now()),
            load=_load(row),
            channel_name=served.config.chat.place_shown,
            week=self._parts.spending.week(name),
            trouble=self._chats.of(channel).sender.channels.trouble(channel)
            or (row.problem if row and row.host else "")
            or TROUBLED.get(state, ""),
            host=row.host if row else "",
        )


def _load(row: RepoRow | None) -> str:
    """ "" if there is nothing to do."""
    turns = row.turns if row else None
    if turns is None or not (turns.running or turns.waiting or turns.queued):
        return ""
    return load(turns.running, turns.waiting, turns.queued, turns.parked)
