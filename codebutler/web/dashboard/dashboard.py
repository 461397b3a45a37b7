"""The dashboard's data and stream: a page gets everything first, then the changes, and the log as it grows. Nothing is
read while nobody is watching, and this module imports no web server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.domain.model import TurnNote
from codebutler.observe.logs import LEVELS, TAGS, LogLine, Ring
from codebutler.platform.tasks import wait_for
from codebutler.text.markup import Addresses
from codebutler.text.redact import every_text
from codebutler.web.dashboard.actions import DashboardActions, Keys
from codebutler.web.dashboard.changes import ChangeReviews
from codebutler.web.dashboard.conversations import Conversations
from codebutler.web.dashboard.ledger import LedgerPage
from codebutler.web.dashboard.view import DashboardFacts, DashboardPage, line_view, page_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

INTERVAL_S = 1.0
PAUSE_FACTOR = 20
"""After a slow read (the memory of a hundred workers), wait this many times as long as it took."""
MAX_PAUSE_S = 10.0
KEEP_ALIVE_S = 15.0
MAX_VIEWERS = 20
PAST_LINES = 300
SENT_WHOLE = ("verdict", "system", "chats", "troubles", "needs", "work", "recent", "jobs", "errors")
"""Sent again as a whole when any of it changes; repositories are sent one by one."""
Level = Literal["debug", "info", "warn", "error"]


class Sources(Struct, frozen=True, kw_only=True):
    """The sources of the data: ``status`` is the object of `codebutler status` (it wakes no worker), ``repo_labels``
    maps a repository to its agent and channel name; ``addresses`` finds where messages can be seen; ``redact`` removes
    secrets from text; ``ledger`` draws the page of costs."""

    status: Callable[[], Awaitable[dict[str, Any]]]
    repo_labels: Callable[[], Mapping[str, tuple[str, str]]]
    turns: Callable[[], Mapping[str, tuple[TurnNote, ...]]]
    jobs: Callable[[], Sequence[Mapping[str, Any]]]
    timers: Callable[[], Sequence[Mapping[str, Any]]]
    ring: Ring
    addresses: Callable[[], Awaitable[Addresses]]
    redact: Callable[[str], str]


class Pages(Struct, frozen=True):
    """The parts that answer a page's requests, besides the stream."""

    reviews: ChangeReviews
    actions: DashboardActions
    conversations: Conversations
    ledger: LedgerPage


class Dashboard:
    """One page for the overall state, one for each run that changed something, and who may see them."""

    def __init__(self, sources: Sources, pages: Pages, keys: Keys, clock: Clock) -> None:
        self._sources = sources
        self._pages = pages
        self._clock = clock
        self._keys = keys
        self._feed = Feed(self._read_page, self._redacted, sources.ring, clock)

    def app(self, bound_to: str) -> ASGIApp:
        """Imports Starlette: do not call from the event loop."""
        from codebutler.web.dashboard.site import create_site

        return create_site(self._feed, self._pages, self._keys, bound_to)

    def ticket(self) -> str:
        """A ticket that lets one browser in, once."""
        return self._keys.ticket()

    def close(self) -> None:
        """Disconnect everybody."""
        self._feed.close()

    async def _read_page(self) -> DashboardPage:
        sources = self._sources
        facts = DashboardFacts(
            status=await sources.status(),
            turns=sources.turns(),
            repo_labels=sources.repo_labels(),
            jobs=sources.jobs(),
            timers=sources.timers(),
            errors=[line for line in sources.ring.recent() if line.tag == "ERR"],
            now=self._clock.now(),
            address=await sources.addresses(),
        )
        return page_of(facts)

    async def _redacted(self, data: Any) -> Any:
        # Searching the first view of many repositories for secrets takes a while.
        return await asyncio.to_thread(every_text, msgspec.to_builtins(data), self._sources.redact)


class LogFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which log lines to stream: from this level, of one repository, or of all and the supervisor, with all
    these words."""

    repo: str = ""
    level: Level = "info"
    words: str = ""

    def matches(self, line: LogLine) -> bool:
        """Whether this line is included."""
        if TAGS.get(line.tag, LEVELS["info"]) < LEVELS[self.level] or self.repo not in ("", line.repo):
            return False
        text = f"{line.tag} {line.repo} {line.text}".casefold()
        return all(word in text for word in self.words.casefold().split())


class Feed:
    """The stream of changes for all viewers. ``read_page`` reads the state; ``redact`` makes text fit to be shown:
    working links, no secrets."""

    def __init__(
        self,
        read_page: Callable[[], Awaitable[DashboardPage]],
        redact: Callable[[Any], Awaitable[Any]],
        ring: Ring,
        clock: Clock,
    ) -> None:
        self._read_page = read_page
        self._redact = redact
        self._ring = ring
        self._clock = clock
        self._reading = asyncio.Lock()
        self._newest: tuple[float, DashboardPage] | None = None
        """The page that all viewers share, and until when it is valid."""
        self._closed = asyncio.Event()
        self.viewers = 0

    @property
    def is_full(self) -> bool:
        """Whether the maximum number of viewers is reached."""
        return self.viewers >= MAX_VIEWERS

    def close(self) -> None:
        """End every stream."""
        self._closed.set()

    async def follow(self, log_filter: LogFilter) -> AsyncIterator[str]:
        """Server-Sent Events: ``page`` and ``log``. Slow readers get fewer updates."""
        self.viewers += 1
        try:
            with self._ring.follow() as follower:
                past = [line for line in follower.past if log_filter.matches(line)][-PAST_LINES:]
                yield await self._log(past, 0, is_past=True)
                follower.past = ()
                previous: DashboardPage | None = None
                sent_s = self._clock.monotonic()
                while not self._closed.is_set():
                    page = await self._page()
                    changed, previous = page_changes(previous, page), page
                    lines, lost = (
                        [line for line in follower.take() if log_filter.matches(line)],
                        follower.lost,
                    )
                    follower.lost = 0
                    if changed:
                        yield _frame(
                            "page", await self._redact({"now": self._clock.now().isoformat(), **changed})
                        )
                    if lines or lost:
                        yield await self._log(lines, lost, is_past=False)
                    if changed or lines:
                        sent_s = self._clock.monotonic()
                    elif self._clock.monotonic() - sent_s >= KEEP_ALIVE_S:
                        sent_s = self._clock.monotonic()
                        yield ": still here\n\n"
                    await wait_for(self._clock, self._closed, INTERVAL_S)
        finally:
            self.viewers -= 1

    async def _page(self) -> DashboardPage:
        """Shared by all viewers."""
        async with self._reading:
            began_s = self._clock.monotonic()
            if self._newest is None or began_s >= self._newest[0]:
                page = await self._read_page()
                took_s = self._clock.monotonic() - began_s
                self._newest = (began_s + max(INTERVAL_S / 2, min(took_s * PAUSE_FACTOR, MAX_PAUSE_S)), page)
            return self._newest[1]

    async def _log(self, lines: list[LogLine], lost: int, *, is_past: bool) -> str:
        data = {"past": is_past, "lost": lost, "lines": [line_view(line) for line in lines]}
        return _frame("log", await self._redact(data))


def page_changes(before: DashboardPage | None, now: DashboardPage) -> dict[str, Any]:
    """The parts of the page that changed. ``repos``: each one that changed; ``names``: all of them, in order, if any
    were added or removed. Pure."""
    parts = {
        field: getattr(now, field)
        for field in SENT_WHOLE
        if before is None or getattr(before, field) != getattr(now, field)
    }
    known = {repo.name: repo for repo in before.repos} if before else {}
    if changed := [repo for repo in now.repos if known.get(repo.name) != repo]:
        parts["repos"] = changed
    names = [repo.name for repo in now.repos]
    if before is None or names != list(known):
        parts["names"] = names
    return parts


def _frame(event: str, data: Any) -> str:
    return f"event: {event}\ndata: {msgspec.json.encode(data).decode()}\n\n"
