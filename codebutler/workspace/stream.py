"""The page's live feed: a bounded ring of events, sent as Server-Sent Events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

import msgspec
from msgspec import Struct

from codebutler.workspace.records import Json

RING_EVENTS = 2000
KEEP_ALIVE_S = 15.0


class StreamEntry(Struct, frozen=True):
    """An event with its number; ``audience`` None means everybody."""

    number: int
    event: Json
    audience: frozenset[str] | None


class Stream:
    """The ring and its subscribers."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._ring: deque[StreamEntry] = deque(maxlen=RING_EVENTS)
        self._last = 0
        self._closed = False

    def publish(self, event: Json, audience: frozenset[str] | None = None) -> None:
        """Publish an event to the users of ``audience`` (None: everybody), including those who connect shortly
        after."""
        self._last += 1
        self._ring.append(StreamEntry(self._last, event, audience))
        self._signal.notify()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._signal.notify()

    async def follow(self, user: str, after: int | None) -> AsyncIterator[str]:
        """SSE frames from now on, or those after number ``after``; "reset" if they are no longer in the ring."""
        at = self._last if after is None else after
        yield ": hello\n\n"
        while not self._closed:
            if at > self._last or at < self._last - len(self._ring):
                at = self._last
                yield f"event: reset\nid: {at}\ndata: {{}}\n\n"
            for entry in self._after(at):
                at = entry.number
                if entry.audience is None or user in entry.audience:
                    yield f"id: {at}\ndata: {msgspec.json.encode(entry.event).decode()}\n\n"
            if not await self._more_than(at):
                yield ": still here\n\n"

    def _after(self, number: int) -> list[StreamEntry]:
        count = min(len(self._ring), max(0, self._last - number))
        first = len(self._ring) - count
        return [self._ring[index] for index in range(first, len(self._ring))]

    async def _more_than(self, number: int) -> bool:
        try:
            return await self._signal.until(lambda: self._closed or self._last > number, KEEP_ALIVE_S)
        except TimeoutError:
            return False


T = TypeVar("T")


class Signal:
    """Call ``notify`` after every change; ``until`` checks again after each and returns the first true result."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Something has changed: everybody who waits checks again. Costs nothing if nobody waits."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, look: Callable[[], T | None], timeout_s: float) -> T:
        """Raises TimeoutError if ``look`` returns nothing true within ``timeout_s``."""
        async with asyncio.timeout(timeout_s):
            while not (found := look()):
                await self._changed()
            return found

    async def _changed(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
