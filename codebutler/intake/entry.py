"""What the journal keeps and hands out: accepted events, and what is remembered of a channel's messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from codebutler.domain.model import Event, Request

# How far before a gap is looked: for what came out of order, and for edits and deletions.
LOOK_BACK_S = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A committed event; ``seq`` is its place in the journal."""

    seq: int
    channel: str
    event: Event
    request: Request
    received_at: datetime


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that came in. ``taken``: it was accepted; else it was passed over (a stranger's)."""

    ts: str
    root_ts: str
    user: str
    taken: bool
    sent_at: float


@dataclass(frozen=True, slots=True)
class Gap:
    """What may have been missed in a channel: messages after ``since_s``, and what became of those ``known`` from
    LOOK_BACK_S before on. Nothing up to ``floor_s`` is ours: it was said before we first listened.

    ``first_root`` began the oldest thread that is alive; ``beyond`` are the last messages of those threads that are
    old.
    """

    channel: str
    since_s: float
    floor_s: float
    known: tuple[Seen, ...]
    first_root: str = ""
    beyond: tuple[Seen, ...] = ()
