"""A connection to a model's service, made before it is needed: nobody waits for its handshake.

Each request still has a connection that carried nothing before, so that none can hide behind another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from codebutler.clock import Clock
from codebutler.process.aborting import abort
from codebutler_worker.egress.dial import Streams, UnreachableError

FRESH_S = 20.0
"""Services close a connection that says nothing after a minute or so; ours is not used that long."""


class Ahead:
    """Holds one connection at most; nothing is made before ``prepare``."""

    def __init__(self, dial: Callable[[], Awaitable[Streams]], clock: Clock) -> None:
        self._dial = dial
        self._clock = clock
        self._begun_s = 0.0
        self._next: asyncio.Task[Streams] | None = None

    def prepare(self) -> None:
        """Begin to make one, if there is none."""
        if self._next is None:
            self._begun_s = self._clock.monotonic()
            self._next = asyncio.create_task(self._connect(), name="connection ahead")

    async def take(self) -> Streams:
        """A fresh connection. Raises UnreachableError."""
        made, self._next = self._next, None
        if made is not None:
            if self._clock.monotonic() - self._begun_s < FRESH_S:
                with contextlib.suppress(UnreachableError):
                    streams = await made
                    if not streams[0].at_eof() and not streams[1].is_closing():
                        return streams
            await _discard(made)
        return await self._dial()

    async def close(self) -> None:
        """Give up what is there."""
        made, self._next = self._next, None
        if made is not None:
            await _discard(made)

    async def _connect(self) -> Streams:
        return await self._dial()


async def _discard(made: asyncio.Task[Streams]) -> None:
    made.cancel()
    await asyncio.wait({made})
    if not made.cancelled() and made.exception() is None:
        abort(made.result()[1].transport)
