"""What the page sees live: a bounded ring of events, told as Server-Sent Events."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct

from codebutler.workspace.records import Json
from codebutler.workspace.signal import Signal

RING_EVENTS = 2000
KEEP_ALIVE_S = 15.0


class Entry(Struct, frozen=True):
    """An event with its number; ``audience`` None means everybody."""

    number: int
    event: Json
    audience: frozenset[str] | None


class Stream:
    """The ring and those who follow it."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._ring: deque[Entry] = deque(maxlen=RING_EVENTS)
        self._last = 0
        self._closed = False

    def publish(self, event: Json, audience: frozenset[str] | None = None) -> None:
        """Tell an event to the users of ``audience`` (None: everybody), also those who ask for it a little later."""
        self._last += 1
        self._ring.append(Entry(self._last, event, audience))
        self._signal.notify()

    def close(self) -> None:
        """Followers end."""
        self._closed = True
        self._signal.notify()

    async def follow(self, user: str, after: int | None) -> AsyncIterator[str]:
        """SSE frames from now on, or those after number ``after``; "reset" when they are no longer held."""
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

    def _after(self, number: int) -> list[Entry]:
        count = min(len(self._ring), max(0, self._last - number))
        first = len(self._ring) - count
        return [self._ring[index] for index in range(first, len(self._ring))]

    async def _more_than(self, number: int) -> bool:
        try:
            return await self._signal.until(lambda: self._closed or self._last > number, KEEP_ALIVE_S)
        except TimeoutError:
            return False
