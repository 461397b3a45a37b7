"""Asks the parent what was said in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

from codebutler.domain.clock import Clock
from codebutler.platform.tasks import settled_within
from codebutler.protocol.messages import FetchThread, ThreadFetched

THREAD_S = 20.0


class ThreadReader:
    """One per worker."""

    def __init__(self, send: Callable[[object], None], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._coming: dict[str, asyncio.Future[ThreadFetched]] = {}

    async def read(self, thread_ts: str, before_ts: str) -> ThreadFetched:
        """The answer, of which ``code`` says why nothing came; also after 20 seconds of waiting."""
        request_id = uuid4().hex
        coming: asyncio.Future[ThreadFetched] = asyncio.get_running_loop().create_future()
        self._coming[request_id] = coming
        self._send(FetchThread(request_id=request_id, thread_ts=thread_ts, before_ts=before_ts))
        try:
            if not await settled_within(self._clock, coming, THREAD_S):
                return ThreadFetched(request_id=request_id, code="timeout")
            return coming.result()
        finally:
            del self._coming[request_id]

    def take(self, message: ThreadFetched) -> None:
        """What the parent says; an answer that nobody waits for any more is let go."""
        coming = self._coming.get(message.request_id)
        if coming is not None and not coming.done():
            coming.set_result(message)
