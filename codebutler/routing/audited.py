"""Nothing runs without a trace: what will start something is in the audit log, on disk, before a worker sees it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from codebutler.clock import Clock
from codebutler.intake.entry import Entry, EventRouter
from codebutler.model import Command, Prompt
from codebutler.observe.acts import Act, act_of, kind_of

RETRY_S = 5.0

log = logging.getLogger("codebutler.audit")


class Record(Protocol):
    """The audit log."""

    def keep(self, acts: Sequence[Act]) -> None:
        """Write lines and sync them to the disk. Blocks. Raises OSError."""


class AuditedRouter:
    """An EventRouter before another one. What arrives together is synced together; order is kept. While the audit
    log cannot be written everything waits, but for our own words, which run nothing: `!stop` must work just then."""

    def __init__(
        self, router: EventRouter, record: Record, clock: Clock, on_trouble: Callable[[Entry, OSError], None]
    ) -> None:
        self._router = router
        self._record = record
        self._clock = clock
        self._on_trouble = on_trouble
        self._waiting: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self.trouble = ""

    def route(self, entry: Entry) -> None:
        """See the port. What would start a turn waits for its audit line, and all that came after it does, too."""
        if self.trouble and isinstance(entry.request, Command):
            self._router.route(entry)
        elif self._waiting or isinstance(entry.request, Prompt):
            self._waiting.append(entry)
            self._arrived.set()
        else:
            self._router.route(entry)

    async def run(self) -> None:
        """Write and hand on, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                await self._hand_on()

    async def _hand_on(self) -> None:
        batch = list(self._waiting)
        acts = [
            act_of(entry.event, kind_of(entry.event, entry.request), "allowed")
            for entry in batch
            if _starts(entry)
        ]
        try:
            await asyncio.to_thread(self._record.keep, acts)
        except OSError as error:
            self._tell(batch, error)
            await self._clock.sleep(RETRY_S)
            return
        self.trouble = ""
        for entry in batch:
            self._waiting.popleft()
            self._router.route(entry)

    def _tell(self, batch: Sequence[Entry], error: OSError) -> None:
        """Once for each channel, as long as it lasts."""
        trouble = f"the audit log cannot be written: {(error.strerror or str(error)).lower()}"
        if not self.trouble:
            log.error("%s: nothing is started until it can", trouble)
            for entry in {each.channel: each for each in batch}.values():
                self._on_trouble(entry, error)
        self.trouble = trouble


def _starts(entry: Entry) -> bool:
    return isinstance(entry.request, Prompt)
