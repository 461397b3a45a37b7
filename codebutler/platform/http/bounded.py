"""Connections that cannot exhaust us: so many at a time, and none that asks for nothing.

Whoever reaches the port may open connections, an agent with an open network too, and each takes a descriptor of the
process that holds the connection to Slack.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 100
IDLE_S = 20.0
"""Without a whole request for so long, or with one that was answered long ago, it is closed."""


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it, within these bounds."""

    most = MAX_CONNECTIONS
    idle_s = IDLE_S

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """One too many is dropped at once."""
        super().connection_made(transport)
        self._check: asyncio.TimerHandle | None = None
        if len(self.connections) > self.most:
            transport.abort()
        else:
            self._check = self.loop.call_later(self.idle_s, self._drop_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def _drop_if_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self._check = self.loop.call_later(self.idle_s, self._drop_if_idle)
