"""The dashboard: what it knows, who may look, and the site that shows it. Nothing of a web server is imported here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from codebutler.domain.clock import Clock
from codebutler.domain.model import TurnNote
from codebutler.observe.ring import Ring
from codebutler.text.markup import at_home
from codebutler.web.dashboard.feed import Feed
from codebutler.web.dashboard.keys import Keys
from codebutler.web.dashboard.view import Facts, Page, page_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp


class Known(Protocol):
    """The parent."""

    async def status(self) -> dict[str, Any]:
        """The object of `codebutler status`; nobody is woken for it."""

    def served_as(self) -> Mapping[str, tuple[str, str]]:
        """Repository to its agent and its channel's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where what is shown comes from; ``clean`` takes secrets out of a text and leads its links to where messages
    really stand."""

    known: Known
    turns: Callable[[], Mapping[str, tuple[TurnNote, ...]]]
    jobs: Callable[[], Sequence[Mapping[str, Any]]]
    ring: Ring
    workspace_url: Callable[[], Awaitable[str]]
    clean: Callable[[str], str]


class Dashboard:
    """A Site for the front."""

    def __init__(self, sources: Sources, keys: Keys, clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._keys = keys
        self._feed = Feed(self._look, self._cleaned, sources.ring, clock)

    def app(self, bound_to: str) -> ASGIApp:
        """Imports Starlette: not from the event loop."""
        from codebutler.web.dashboard.site import create_site

        return create_site(self._feed, self._keys, bound_to)

    @property
    def viewers(self) -> int:
        """How many look now."""
        return self._feed.viewers

    def ticket(self) -> str:
        """Lets one browser in, once."""
        return self._keys.ticket()

    def close(self) -> None:
        """Let go of everybody who looks."""
        self._feed.close()

    async def _look(self) -> Page:
        sources = self._sources
        facts = Facts(
            status=await sources.known.status(),
            turns=sources.turns(),
            served=sources.known.served_as(),
            jobs=sources.jobs(),
            errors=[line for line in sources.ring.recent() if line.tag == "ERR"],
            now=self._clock.now(),
        )
        return page_of(facts)

    async def _cleaned(self, told: Any) -> Any:
        url = await self._sources.workspace_url()

        def clean(text: str) -> str:
            return at_home(self._sources.clean(text), url)

        # The first picture of many repositories takes a while to be searched for secrets.
        return await asyncio.to_thread(_every_text, msgspec.to_builtins(told), clean)


def _every_text(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case list() | tuple():
            return [_every_text(each, change) for each in value]
        case dict():
            return {key: _every_text(each, change) for key, each in value.items()}
    return value
