"""The way of every accepted event, from the journal to its worker.

Each step takes the event (it answers it, or keeps it until it may go on) or lets it pass, as it is or translated. The
journal keeps the event until it is settled: what a step still holds when we die comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from codebutler.intake.entry import Entry

GoOn = Callable[[Entry], None]
"""Hands an entry to the step after this one."""
Step = Callable[[Entry, GoOn], None]
"""Returns at once and raises nothing; it may go on later, in the order in which it was given a channel's entries."""


class EventRouter(Protocol):
    """Reaches every worker: over pipes where all are children of this process."""

    def deliver(self, entry: Entry) -> None:
        """Queue an event for its channel's worker, waking it; where there is none, the journal keeps it."""


class Dispatcher:
    """``dispatch`` returns at once and raises nothing."""

    def __init__(
        self,
        *,
        held_back: Step,
        direct_message: Step,
        parent_command: Step,
        audit: Step,
        overheard: Step,
        router: EventRouter,
    ) -> None:
        self._steps = (
            held_back,  # until what was written before it has been fetched
            direct_message,  # from here on it is one of its repository's channel, or is answered
            parent_command,  # a command that no worker runs is answered
            audit,  # what will start something is in the audit log first
            overheard,  # who listens at this machine hears it
        )
        self._router = router

    def dispatch(self, entry: Entry) -> None:
        """Hand on an entry, in order per channel."""
        self._go_on(0, entry)

    def _go_on(self, done: int, entry: Entry) -> None:
        if done < len(self._steps):
            self._steps[done](entry, partial(self._go_on, done + 1))
        else:
            self._router.deliver(entry)


def let_pass(entry: Entry, go_on: GoOn) -> None:
    """The step that takes nothing."""
    go_on(entry)
