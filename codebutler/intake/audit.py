"""Nothing runs without a trace: what will start something is in the audit log, on disk, before a worker sees it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from codebutler.domain.clock import Clock
from codebutler.domain.model import Command, Prompt
from codebutler.intake.dispatcher import GoOn
from codebutler.intake.entry import Entry
from codebutler.observe.chain import AuditAct, act_of, kind_of

RETRY_S = 5.0

log = logging.getLogger("codebutler.audit")


class AuditFirst:
    """A step of the dispatcher. What arrives together is synced together; order is kept. While the audit log cannot be
    written everything waits, but for our own words, which run nothing: `!stop` must work just then.

    ``keep`` writes lines and syncs them to the disk; it blocks, and raises OSError.
    """

    def __init__(
        self,
        keep: Callable[[Sequence[AuditAct]], None],
        clock: Clock,
        on_trouble: Callable[[Entry, OSError], None],
    ) -> None:
        self._keep = keep
        self._clock = clock
        self._on_trouble = on_trouble
        self._waiting: deque[tuple[Entry, GoOn]] = deque()
        self._arrived = asyncio.Event()
        self.trouble = ""

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """What would start a turn waits for its audit line, and all that came after it does, too."""
        passes = self.trouble and isinstance(entry.request, Command)
        if not passes and (self._waiting or isinstance(entry.request, Prompt)):
            self._waiting.append((entry, go_on))
            self._arrived.set()
        else:
            go_on(entry)

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
            for entry, _ in batch
            if isinstance(entry.request, Prompt)
        ]
        try:
            await asyncio.to_thread(self._keep, acts)
        except OSError as error:
            self._tell([entry for entry, _ in batch], error)
            await self._clock.sleep(RETRY_S)
            return
        self.trouble = ""
        for entry, go_on in batch:
            self._waiting.popleft()
            go_on(entry)

    def _tell(self, batch: Sequence[Entry], error: OSError) -> None:
        """Once for each channel, as long as it lasts."""
        trouble = f"the audit log cannot be written: {(error.strerror or str(error)).lower()}"
        if not self.trouble:
            log.error("%s: nothing is started until it can", trouble)
            for entry in {each.channel: each for each in batch}.values():
                self._on_trouble(entry, error)
        self.trouble = trouble
