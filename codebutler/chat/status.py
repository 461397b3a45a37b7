"""What is done in a thread, shown under it while it lasts (Slack: assistant.threads.setStatus).

Best effort and no record: the latest for each thread, lost when the process ends; Slack drops it after two minutes
and at our next message in the thread. A chat that has no such line, or refuses it, shows none: what a turn does still
stands in its progress message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from codebutler.chat.port import ABOUT_A_PLACE, StatusLine
from codebutler.domain.clock import Clock
from codebutler.domain.errors import ChatError, ChatRateLimitedError, ChatUnreachableError

PACE_S = 0.2
"""Between two calls; Slack allows 600 a minute for an app."""
MAX_WAITING = 500
MAX_CHARS = 200

log = logging.getLogger("codebutler.chat.status")


class StatusBoard:
    """An async context manager; leaving it stops at once. ``redact`` sees every text last."""

    def __init__(self, line: StatusLine | None, clock: Clock, redact: Callable[[str], str]) -> None:
        self._line = line
        self._clock = clock
        self._redact = redact
        self._waiting: dict[tuple[str, str], str] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._work(), name="status board")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def show(self, channel: str, thread_ts: str, text: str) -> None:
        """Show ``text`` under the thread; "" takes away what is there."""
        known = (channel, thread_ts) in self._waiting
        if self._line is None or (not known and len(self._waiting) >= MAX_WAITING):
            return
        self._waiting[channel, thread_ts] = text
        self._news.set()

    async def _work(self) -> None:
        while True:
            await self._news.wait()
            if not self._waiting:
                self._news.clear()
                continue
            (channel, thread_ts), text = next(iter(self._waiting.items()))
            del self._waiting[channel, thread_ts]
            if self._line is not None:
                await self._clock.sleep(await self._show(self._line, channel, thread_ts, text))

    async def _show(self, line: StatusLine, channel: str, thread_ts: str, text: str) -> float:
        """Returns the seconds until the next call."""
        try:
            await line.show_status(channel, thread_ts, self._redact(text)[:MAX_CHARS])
        except ChatRateLimitedError as error:
            return error.retry_after_s
        except ChatUnreachableError:
            return PACE_S
        except ChatError as error:
            if error.code not in ABOUT_A_PLACE:
                self._line = None
                self._waiting.clear()
                log.info("no status is shown under threads: %s", error)
        return PACE_S
