"""Which repository each direct conversation's threads belong to: kept on disk, looked up in memory.

A worker knows its own channel only, so everything in such a thread is known by that channel (``home``) and by its
own ts or file ID (``item``). Slack's ts are exact to the microsecond: two of one repository's, in two conversations,
do not meet.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Coroutine

from codebutler.domain.errors import StoreError
from codebutler.intake.journal import Journal
from codebutler.intake.journal_file import KEPT_DIRECT
from codebutler.text.markup import relinked

log = logging.getLogger("codebutler.parent.direct")


class Book:
    """A Detour for the sender. ``load`` it before use."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._places: dict[tuple[str, str], str] = {}
        self._homes: dict[tuple[str, str], str] = {}
        self._channels: dict[str, str] = {}

    async def load(self) -> None:
        """Read what earlier lives kept. Raises StoreError."""
        for home, item, channel in await self._journal.placed_direct():
            self._note(home, channel, (item,))

    @property
    def people(self) -> frozenset[str]:
        """The users whose direct conversation is known by ``meet``."""
        return frozenset(item for home, item in self._places if not home)

    async def meet(self, user: str, channel: str) -> None:
        """This is the conversation with ``user``; it is about nothing yet. Raises StoreError."""
        await self.place("", channel, (user,))

    @property
    def channels(self) -> tuple[str, ...]:
        """Every direct conversation that is known."""
        return tuple(self._channels)

    def home(self, channel: str, *items: str) -> str:
        """The channel of the repository that one of these messages of a conversation belongs to; "" if none does."""
        found = (self._homes.get((channel, item), "") for item in items)
        return next((home for home in found if home), "")

    def latest(self, channel: str) -> str:
        """The channel of the repository that the conversation was about last; "" if it was about none."""
        return self._channels.get(channel, "")

    def where(self, channel: str, item: str) -> str:
        """The direct conversation in which ``item`` of a repository's channel stands; else the channel itself."""
        return self._places.get((channel, item), channel)

    async def place(self, home: str, channel: str, items: Collection[str]) -> None:
        """From now on these belong to the repository of ``home``. Returns once that is on disk. Raises StoreError."""
        fresh = [item for item in items if self._places.get((home, item)) != channel]
        if fresh:
            await self._journal.place_direct(home, channel, fresh)
            self._note(home, channel, fresh)

    def knows(self, home: str, channel: str, items: Collection[str]) -> bool:
        """Whether all of them are placed there."""
        return all(self._places.get((home, item)) == channel for item in items)

    def note(self, home: str, channel: str, items: Collection[str]) -> Coroutine[object, object, None]:
        """The same, known at once; the rest, to be awaited or started, keeps it for the next life if the disk can."""
        self._note(home, channel, items)
        return self._keep(home, channel, tuple(items))

    async def posted(self, channel: str, place: str, ts: str) -> None:
        """Our own message stands in ``place``."""
        await self.note(channel, place, (ts,))

    async def _keep(self, home: str, channel: str, items: tuple[str, ...]) -> None:
        try:
            await self._journal.place_direct(home, channel, items)
        except StoreError as error:
            log.warning("a direct message is not kept for the next start: %s", error)

    def relinked(self, text: str) -> str:
        """The text with its links to messages leading to where they really stand."""
        return relinked(text, self.where)

    def _note(self, home: str, channel: str, items: Collection[str]) -> None:
        self._channels[channel] = home or self._channels.get(channel, "")
        for item in items:
            self._places[home, item] = channel
            self._homes[channel, item] = home
        while len(self._places) > KEPT_DIRECT:
            oldest, place = next(iter(self._places.items()))
            del self._places[oldest]
            self._homes.pop((place, oldest[1]), None)
