"""What a page is told: all of it first, then what changes; the log as it grows. Nothing is looked at for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import msgspec

from codebutler.domain.clock import Clock
from codebutler.observe.ring import LEVELS, Line, Ring, level_of
from codebutler.platform.tasks import wait_for
from codebutler.web.dashboard.view import Page, line_view

PACE_S = 1.0
REST = 20
"""A look that takes long (a hundred workers' memory) is followed by so many times as long a rest."""
LONGEST_REST_S = 10.0
KEEP_ALIVE_S = 15.0
MAX_VIEWERS = 20
PAST_LINES = 300
WHOLE = ("verdict", "system", "chats", "troubles", "needs", "work", "recent", "jobs", "errors")
"""What is told again as a whole when any of it changes; repositories are told one by one."""

Level = Literal["debug", "info", "warn", "error"]


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines of the log somebody wants: from this level, of one repository, or of all and the supervisor."""

    repo: str = ""
    level: Level = "info"

    def wants(self, line: Line) -> bool:
        """Whether they want this one."""
        return level_of(line.tag) >= LEVELS[self.level] and self.repo in ("", line.repo)


class Feed:
    """``look`` says how things are; ``clean`` makes what is told fit to be shown: links that lead somewhere, no
    secrets."""

    def __init__(
        self,
        look: Callable[[], Awaitable[Page]],
        clean: Callable[[Any], Awaitable[Any]],
        ring: Ring,
        clock: Clock,
    ) -> None:
        self._look = look
        self._clean = clean
        self._ring = ring
        self._clock = clock
        self._looking = asyncio.Lock()
        self._newest: tuple[float, Page] | None = None
        """Good until that moment."""
        self._closed = asyncio.Event()
        self.viewers = 0

    @property
    def is_full(self) -> bool:
        """Whether so many look that nobody else may."""
        return self.viewers >= MAX_VIEWERS

    def close(self) -> None:
        """Everybody's stream ends."""
        self._closed.set()

    async def follow(self, wish: Wish) -> AsyncIterator[str]:
        """Server-Sent Events: ``page`` and ``log``. Who reads slowly is told less often."""
        self.viewers += 1
        try:
            with self._ring.follow() as follower:
                past = [line for line in follower.past if wish.wants(line)][-PAST_LINES:]
                yield await self._log(past, 0, is_past=True)
                follower.past = ()
                told: Page | None = None
                told_s = self._clock.monotonic()
                while not self._closed.is_set():
                    page = await self._page()
                    changed, told = changes(told, page), page
                    lines, lost = [line for line in follower.take() if wish.wants(line)], follower.lost
                    follower.lost = 0
                    if changed:
                        yield _frame(
                            "page", await self._clean({"now": self._clock.now().isoformat(), **changed})
                        )
                    if lines or lost:
                        yield await self._log(lines, lost, is_past=False)
                    if changed or lines:
                        told_s = self._clock.monotonic()
                    elif self._clock.monotonic() - told_s >= KEEP_ALIVE_S:
                        told_s = self._clock.monotonic()
                        yield ": still here\n\n"
                    await wait_for(self._clock, self._closed, PACE_S)
        finally:
            self.viewers -= 1

    async def _page(self) -> Page:
        """Shared by all who look."""
        async with self._looking:
            began_s = self._clock.monotonic()
            if self._newest is None or began_s >= self._newest[0]:
                page = await self._look()
                took_s = self._clock.monotonic() - began_s
                self._newest = (began_s + max(PACE_S / 2, min(took_s * REST, LONGEST_REST_S)), page)
            return self._newest[1]

    async def _log(self, lines: list[Line], lost: int, *, is_past: bool) -> str:
        told = {"past": is_past, "lost": lost, "lines": [line_view(line) for line in lines]}
        return _frame("log", await self._clean(told))


def changes(before: Page | None, now: Page) -> dict[str, Any]:
    """What of the page is not as it was. ``repos``: each one that changed; ``names``: all of them, in order, when
    some came or went. Pure."""
    told = {
        field: getattr(now, field)
        for field in WHOLE
        if before is None or getattr(before, field) != getattr(now, field)
    }
    known = {repo.name: repo for repo in before.repos} if before else {}
    if changed := [repo for repo in now.repos if known.get(repo.name) != repo]:
        told["repos"] = changed
    names = [repo.name for repo in now.repos]
    if before is None or names != list(known):
        told["names"] = names
    return told


def _frame(event: str, told: Any) -> str:
    return f"event: {event}\ndata: {msgspec.json.encode(told).decode()}\n\n"
