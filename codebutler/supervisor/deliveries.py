"""The events one worker still has to take over. They stay here until it has stored them, through any death.

The journal on disk holds them too: losing this object loses nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque

from codebutler.intake.entry import Entry
from codebutler.supervisor.limits import DELIVERIES_IN_FLIGHT


class Deliveries:
    """In the order of ``seq``; at most ``window`` are on their way to the worker at a time."""

    def __init__(self, window: int = DELIVERIES_IN_FLIGHT) -> None:
        self._window = window
        self._waiting: deque[Entry] = deque()
        self._sent: dict[int, Entry] = {}
        self._known: set[int] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._known)

    def add(self, entry: Entry) -> None:
        """Queue ``entry`` unless it is queued already."""
        if entry.seq not in self._known:
            self._known.add(entry.seq)
            self._waiting.append(entry)
            self._changed.set()

    def again(self) -> None:
        """A new process knows nothing of what its predecessor had not stored: all of it is to be sent."""
        self._waiting = deque(sorted([*self._sent.values(), *self._waiting], key=lambda entry: entry.seq))
        self._sent.clear()
        self._changed.set()

    async def next(self) -> Entry:
        """The next event to send, once there is one and the worker has room for it."""
        while not self._waiting or len(self._sent) >= self._window:
            self._changed.clear()
            await self._changed.wait()
        entry = self._waiting.popleft()
        self._sent[entry.seq] = entry
        return entry

    def settle(self, seq: int) -> bool:
        """The worker has it on disk. False if it was never sent that event: nothing is forgotten then."""
        if self._sent.pop(seq, None) is None:
            return False
        self._known.discard(seq)
        self._changed.set()
        return True
