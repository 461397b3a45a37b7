"""Asks the parent what was said in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from codebutler.clock import Clock
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
        coming = self._coming[request_id] = asyncio.get_running_loop().create_future()
        self._send(FetchThread(request_id=request_id, thread_ts=thread_ts, before_ts=before_ts))
        alarm = asyncio.create_task(self._clock.sleep(THREAD_S), name=f"deadline of thread {thread_ts}")
        first: tuple[asyncio.Future[Any], ...] = (coming, alarm)
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else ThreadFetched(request_id=request_id, code="timeout")
        finally:
            del self._coming[request_id]
            alarm.cancel()
            await asyncio.gather(alarm, return_exceptions=True)

    def take(self, message: ThreadFetched) -> None:
        """What the parent says; an answer that nobody waits for any more is let go."""
        coming = self._coming.get(message.request_id)
        if coming is not None and not coming.done():
            coming.set_result(message)
