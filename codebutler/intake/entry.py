"""What intake hands on, and to whom."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from codebutler.model import Event, Request


def is_direct(channel: str) -> bool:
    """Whether it is somebody's direct conversation with us. Slack: the IDs of those begin with D."""
    return channel.startswith("D")


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed event; ``seq`` is its place in the journal."""

    seq: int
    channel: str
    event: Event
    request: Request
    received_at: datetime


class EventRouter(Protocol):
    """Hands journal entries on, in order per channel; the entry stays in the journal until it is settled."""

    def route(self, entry: Entry) -> None:
        """Hand an entry on. Returns at once and raises nothing: what cannot be handed on stays in the journal."""
