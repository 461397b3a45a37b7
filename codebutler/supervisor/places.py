"""How many workers may run at once: as many as the machine lets us open files for. Idle ones make room for others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable


class Places:
    """``count`` places, None = as many as are asked for. Who waits gets one in order of asking.

    ``who`` is anything that tells one from another: who waits (take, withdraw), or who runs (all others).
    """

    def __init__(self, count: int | None = None) -> None:
        self._free = count
        self._queue: OrderedDict[object, asyncio.Future[bool]] = OrderedDict()
        self._nudges: OrderedDict[object, Callable[[], None]] = OrderedDict()
        self._leaving: set[object] = set()

    @property
    def wanted(self) -> bool:
        """Whether more workers wait for a place than are about to leave theirs."""
        return len(self._queue) > len(self._leaving)

    @property
    def full(self) -> bool:
        """Whether the next one has to wait."""
        return self._free is not None and self._free <= 0

    async def take(self, who: object) -> bool:
        """Wait for a place, to be given back; False after ``withdraw``. Those who have one are asked, the longest idle
        first, to make room."""
        if self._free is None:
            return True
        if self._free > 0:
            self._free -= 1
            return True
        turn = self._queue[who] = asyncio.get_running_loop().create_future()
        for nudge in list(self._nudges.values()):
            nudge()
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            if turn.done() and turn.result():
                self.give_back(None)
            raise
        finally:
            self._queue.pop(who, None)

    def withdraw(self, who: object) -> None:
        """It waits no longer."""
        if turn := self._queue.pop(who, None):
            turn.set_result(False)

    def give_back(self, who: object) -> None:
        """The process of ``who`` has ended; None if it never had one."""
        self._nudges.pop(who, None)
        self._leaving.discard(who)
        if self._free is None:
            return
        if self._queue:
            _, turn = self._queue.popitem(last=False)
            turn.set_result(True)
        else:
            self._free += 1

    def entered(self, who: object, nudge: Callable[[], None]) -> None:
        """It runs; ``nudge`` is called whenever somebody begins to wait."""
        self._nudges[who] = nudge

    def used(self, who: object) -> None:
        """It has had something to do just now."""
        if who in self._nudges:
            self._nudges.move_to_end(who)

    def leaving(self, who: object) -> None:
        """It is about to make room."""
        self._leaving.add(who)
