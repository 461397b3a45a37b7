"""The steps of every accepted event, from the journal to its worker.

Each step takes the event (answers it, or keeps it for a while) or passes it on, unchanged or translated. The
journal keeps the event until it is settled: an event that a step still holds when the process dies is
dispatched again at the next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from codebutler.domain.clock import Clock
from codebutler.domain.model import Command, Event, MessageDeleted, MessageEdited, MessagePosted, Prompt
from codebutler.domain.refs import ConversationRef
from codebutler.intake.records import Entry
from codebutler.observe.chain import AuditAct, act_of

GoOn = Callable[[Entry], None]
"""Passes an entry to the next step."""
Step = Callable[[Entry, GoOn], None]
"""Returns at once and raises nothing; it may pass entries on later, in the order it got a channel's."""
Concern = Literal["event", "direct", "command"]
"""What a step concerns: every event, those of direct messages, or commands."""

RETRY_S = 5.0
log = logging.getLogger("codebutler.audit")


class Dispatcher:
    """Passes accepted events through the steps to their workers. ``deliver`` queues an entry for its channel's worker.
    ``dispatch`` returns at once and raises nothing."""

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
        self._steps: tuple[tuple[Concern, Step], ...] = (
            ("event", held_back),  # until what was written before it has been fetched
            ("direct", direct_message),  # from here on it is one of its repository's channel, or is answered
            ("command", parent_command),  # a command that no worker runs is answered
            ("event", audit),  # what will start something is in the audit log first
            ("event", overheard),  # listeners at this machine get it
        )
        self._deliver = deliver

    def dispatch(self, entry: Entry, done: int = 0) -> None:
        """Pass an entry, in order per channel, to each step that it concerns; ``done``: the number of steps it has
        passed."""
        is_command = isinstance(entry.request, Command)
        for number, (concern, step) in enumerate(self._steps[done:], start=done + 1):
            if concern == "event" or (entry.event.is_direct if concern == "direct" else is_command):
                step(entry, partial(self.dispatch, done=number))
                return
        self._deliver(entry)


class HeldBack:
    """A step of the dispatcher. Clicks, slash commands and the operator's messages never wait."""

    def __init__(self) -> None:
        self._held: dict[ConversationRef, list[tuple[str, Entry, GoOn]]] = {}

    def hold(self, channel: ConversationRef) -> None:
        """Hold the channel's messages until ``release``."""
        self._held.setdefault(channel, [])

    def release(self, channel: ConversationRef) -> None:
        """Pass on what waits, in the order it was written. A channel that is not held has nothing waiting."""
        for _, entry, go_on in sorted(self._held.pop(channel, []), key=lambda held: (held[0], held[1].seq)):
            go_on(entry)

    def release_all(self) -> None:
        """Hold nothing any more."""
        for channel in list(self._held):
            self.release(channel)

    def take(self, entry: Entry, go_on: GoOn) -> None:
        """Keep messages of a held channel, and pass everything else on."""
        held = self._held.get(entry.channel)
        if held is not None and (order := _order(entry.event)) is not None:
            held.append((order, entry, go_on))
        else:
            go_on(entry)


def _order(event: Event) -> str | None:
    """The channel of a message in the chat; None for everything else."""
    match event:
        case MessagePosted(origin="chat", order=order) | MessageEdited(order=order):
            return order
        case MessageDeleted(order=order):
            return order
    return None


class AuditFirst:
    """A step of the dispatcher. Entries that arrive together are synced together, in order. While the audit
    log cannot be written, everything waits except commands, which start nothing: `!stop` must still work.

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
        """Keep an event that would start a turn until its audit line is written, and everything after it, too."""
        passes = self.trouble and isinstance(entry.request, Command)
        if not passes and (self._waiting or isinstance(entry.request, Prompt)):
            self._waiting.append((entry, go_on))
            self._arrived.set()
        else:
            go_on(entry)

    async def run(self) -> None:
        """Write and pass on, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                batch = list(self._waiting)
                acts = [
                    act_of(entry.event, entry.request, "allowed")
                    for entry, _ in batch
                    if isinstance(entry.request, Prompt)
                ]
                try:
                    await asyncio.to_thread(self._keep, acts)
                except OSError as error:
                    self._tell([entry for entry, _ in batch], error)
                    await self._clock.sleep(RETRY_S)
                    continue
                self.trouble = ""
                for entry, go_on in batch:
                    self._waiting.popleft()
                    go_on(entry)

    def _tell(self, batch: Sequence[Entry], error: OSError) -> None:
        """Tell each channel once, as long as the problem lasts."""
        trouble = f"the audit log cannot be written: {(error.strerror or str(error)).lower()}"
        if not self.trouble:
            log.error("%s: nothing starts until this is fixed", trouble)
            for entry in {each.channel: each for each in batch}.values():
                self._on_trouble(entry, error)
        self.trouble = trouble
