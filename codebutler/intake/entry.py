"""What intake hands on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

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
