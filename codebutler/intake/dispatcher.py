"""The way of every accepted event, from the journal to its worker.

Each step takes the event (it answers it, or keeps it until it may go on) or lets it pass, as it is or translated. The
journal keeps the event until it is settled: what a step still holds when the process dies
is dispatched again at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from codebutler.domain.clock import Clock
from codebutler.domain.model import Command, Event, MessageDeleted, MessageEdited, MessagePosted, Prompt
from codebutler.intake.records import Entry
from codebutler.observe.chain import AuditAct, act_of, kind_of

GoOn = Callable[[Entry], None]
"""Hands an entry to the step after this one."""
Step = Callable[[Entry, GoOn], None]
"""Returns at once and raises nothing; it may go on later, in the order in which it was given a channel's entries."""

RETRY_S = 5.0
log = logging.getLogger("codebutler.audit")


class Dispatcher:
    """``deliver`` queues an entry for its channel's worker. ``dispatch`` returns at once and raises nothing."""

    def __init__(
        self,
        *,
        held_back: Step,
        direct_message: Step,
        parent_command: Step,
        audit: Step,
        overheard: Step,
        deliver: Callable[[Entry], None],
    ) -> None:
        self._steps = (
            held_back,  # until what was written before it has been fetched
            direct_message,  # from here on it is one of its repository's channel, or is answered
            parent_command,  # a command that no worker runs is answered
            audit,  # what will start something is in the audit log first
            overheard,  # who listens at this machine hears it
        )
        self._deliver = deliver

    def dispatch(self, entry: Entry) -> None:
        """Hand on an entry, in order per channel."""
        self._go_on(0, entry)

    def _go_on(self, done: int, entry: Entry) -> None:
        if done < len(self._steps):
            self._steps[done](entry, partial(self._go_on, done + 1))
        else:
            self._deliver(entry)


class HeldBack:
    """A step of the dispatcher. Clicks, slash commands and what comes from this machine never wait."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[str, Entry, GoOn]]] = {}

    def hold(self, channel: str) -> None:
        """From now on the channel's messages wait for ``release``."""
        self._held.setdefault(channel, [])

    def release(self, channel: str) -> None:
        """Hand on what waits, in the order it was written. A channel that is not held has nothing waiting."""
        for _, entry, go_on in sorted(self._held.pop(channel, []), key=lambda held: (held[0], held[1].seq)):
            go_on(entry)

    def release_all(self) -> None:
        """Hold nothing any more."""
        for channel in list(self._held):
            self.release(channel)

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """Of a channel that is held, only what was written in it waits."""
        held = self._held.get(entry.channel)
        if held is not None and (order := _order(entry.event)) is not None:
            held.append((order, entry, go_on))
        else:
            go_on(entry)


def _order(event: Event) -> str | None:
    """Of what was written in the chat; None for everything else."""
    match event:
        case MessagePosted(origin="chat", order=order) | MessageEdited(order=order):
            return order
        case MessageDeleted(order=order):
            return order
    return None


class AuditFirst:
    """A step of the dispatcher. What arrives together is synced together; order is kept. While the audit log cannot be
    written, everything waits except commands, which start nothing: `!stop` must still work.

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
