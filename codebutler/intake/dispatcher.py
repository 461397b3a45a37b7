"""The steps of every accepted event, from the journal to its worker.

Each step takes the event (answers it, or keeps it for a while) or passes it on, unchanged or translated. The journal
keeps the event until it is settled: an event that a step still holds when the process dies is dispatched again at the
next start.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Sequence
from functools import partial
from operator import itemgetter

from msgspec import Struct

from codebutler.domain.clock import Clock
from codebutler.domain.model import Command, Event, MessageDeleted, MessageEdited, MessagePosted, Prompt
from codebutler.domain.refs import ConversationRef
from codebutler.intake.records import Entry
from codebutler.observe.chain import AuditAct, act_of

GoOn = Callable[[Entry], None]
"""Passes an entry to the next step."""
Step = Callable[[Entry, GoOn], None]
"""Returns at once and raises nothing; it may pass entries on later, in the order it got a channel's."""

RELEASED, ADDRESSED, UNANSWERED, AUDITED = range(1, 5)
"""The steps that an entry has passed: it is not held back; it is one of a repository's channel; it is no command of the
parent; its audit line is on disk, if it needs one."""
RETRY_S = 5.0

log = logging.getLogger("codebutler.audit")


class Steps(Struct, frozen=True, kw_only=True):
    """What an event passes, in this order. ``direct_message`` answers a direct message, or makes it one of its
    repository's channel. ``parent_command`` answers a command that no worker runs.

    ``keep`` writes audit lines and syncs them to the disk; it blocks, and raises OSError: then ``on_trouble`` is called
    once for each channel. ``notify`` gets the messages of channels that are ``followed`` at this machine.
    ``deliver`` queues an entry for its channel's worker.
    """

    direct_message: Step
    parent_command: Step
    keep: Callable[[Sequence[AuditAct]], None]
    on_trouble: Callable[[Entry, OSError], None]
    followed: Container[ConversationRef]
    notify: Callable[[MessagePosted], None]
    deliver: Callable[[Entry], None]


class Dispatcher:
    """Passes accepted events to their workers; run ``run`` beside it. A channel's messages wait while what was written
    before them is fetched (``hold``). While the audit log cannot be written, everything waits except commands, which
    start nothing: `!stop` must still work."""

    def __init__(self, steps: Steps, clock: Clock) -> None:
        self._steps = steps
        self._clock = clock
        self._held: dict[ConversationRef, list[tuple[str, int, Entry]]] = {}
        """By channel: the place of each message in the channel's order."""
        self._unaudited: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self.trouble = ""
        """Why nothing starts, "" if it does."""

    def dispatch(self, entry: Entry, passed: int = 0) -> None:
        """Pass an entry on, in order per channel. Returns at once and raises nothing. ``passed``: the last step that it
        has passed."""
        event, is_command = entry.event, isinstance(entry.request, Command)
        held = self._held.get(entry.channel)
        if passed < RELEASED and held is not None and (order := _order(event)) is not None:
            held.append((order, entry.seq, entry))
        elif passed < ADDRESSED and event.is_direct:
            self._steps.direct_message(entry, partial(self.dispatch, passed=ADDRESSED))
        elif passed < UNANSWERED and is_command:
            self._steps.parent_command(entry, partial(self.dispatch, passed=UNANSWERED))
        elif passed < AUDITED and (
            isinstance(entry.request, Prompt) or (self._unaudited and not (self.trouble and is_command))
        ):
            # What starts something waits for its audit line, and everything after it, too.
            self._unaudited.append(entry)
            self._arrived.set()
        else:
            followed = entry.channel in self._steps.followed
            if followed and isinstance(event, MessagePosted) and event.origin == "chat":
                self._steps.notify(event)
            self._steps.deliver(entry)

    def hold(self, channel: ConversationRef) -> None:
        """Hold the channel's messages until ``release``."""
        self._held.setdefault(channel, [])

    def release(self, channel: ConversationRef) -> None:
        """Pass on what waits, in the order it was written. A channel that is not held has nothing waiting."""
        for _, _, entry in sorted(self._held.pop(channel, []), key=itemgetter(0, 1)):
            self.dispatch(entry, RELEASED)

    def release_all(self) -> None:
        """Hold nothing any more."""
        for channel in list(self._held):
            self.release(channel)

    async def run(self) -> None:
        """Write audit lines and pass on what waits for them, until cancelled. Entries that arrive together are synced
        together, in order."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._unaudited:
                batch = list(self._unaudited)
                acts = [
                    act_of(entry.event, entry.request, "allowed")
                    for entry in batch
                    if isinstance(entry.request, Prompt)
                ]
                try:
                    await asyncio.to_thread(self._steps.keep, acts)
                except OSError as error:
                    self._report(batch, error)
                    await self._clock.sleep(RETRY_S)
                    continue
                self.trouble = ""
                for entry in batch:
                    self._unaudited.popleft()
                    self.dispatch(entry, AUDITED)

    def _report(self, batch: Sequence[Entry], error: OSError) -> None:
        """Tell each channel once, as long as the problem lasts."""
        trouble = f"the audit log cannot be written: {(error.strerror or str(error)).lower()}"
        if not self.trouble:
            log.error("%s: nothing starts until this is fixed", trouble)
            for entry in {each.channel: each for each in batch}.values():
                self._steps.on_trouble(entry, error)
        self.trouble = trouble


def _order(event: Event) -> str | None:
    """The place of a message of the chat among those of its channel; None for everything else, which never waits."""
    match event:
        case MessagePosted(origin="chat", order=order) | MessageEdited(order=order):
            return order
        case MessageDeleted(order=order):
            return order
    return None
