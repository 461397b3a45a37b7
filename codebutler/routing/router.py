"""How an accepted event reaches whoever works for its channel."""

from __future__ import annotations

from typing import Protocol

from codebutler.intake.entry import Entry


class Workers(Protocol):
    """The local supervisor, as the router sees it."""

    def deliver(self, entry: Entry) -> None:
        """Queue an event for its channel's worker, waking it; where there is none, the journal keeps it."""


class LocalRouter:
    """Every worker is a child of this process."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def route(self, entry: Entry) -> None:
        """Queue the entry for its channel's worker, waking it if it sleeps."""
        self._workers.deliver(entry)
