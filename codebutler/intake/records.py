"""What the journal keeps and hands out: accepted events, and what is remembered of a channel's messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import msgspec

from codebutler.domain.errors import StoreError
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
class SeenMessage:
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
    known: tuple[SeenMessage, ...]
    first_root: str = ""
    beyond: tuple[SeenMessage, ...] = ()


T = TypeVar("T", bound=msgspec.Struct)

log = logging.getLogger("codebutler.notes")


class Notes(Protocol):
    """What outlives the process: the journal."""

    async def note(self, name: str) -> str:
        """What was last kept under a name; "" if nothing was. Raises StoreError."""

    async def keep_note(self, name: str, value: str) -> None:
        """Keep a value under a name, in place of what was there. Raises StoreError."""


class Kept(Generic[T]):
    """``value`` is the note ``name`` as it stands now, once it is opened; before that, and without one, ``empty``.

    A stored note that cannot be read is replaced by ``empty``.
    """

    def __init__(self, notes: Notes, name: str, empty: T) -> None:
        self.value = empty
        self._notes = notes
        self._name = name
        self._opening = asyncio.Lock()
        self._open = False

    async def open(self) -> T:
        """The value, read the first time. Raises StoreError."""
        async with self._opening:
            if not self._open:
                self.value = self._decoded(await self._notes.note(self._name))
                self._open = True
        return self.value

    async def change(self, change: Callable[[T], T]) -> None:
        """Change the value, and keep it. Raises StoreError: then all is as it was."""
        before = await self.open()
        self.value = after = change(before)
        if after == before:
            return
        try:
            await self._notes.keep_note(self._name, msgspec.json.encode(after).decode())
        except StoreError:
            if self.value is after:
                self.value = before
            raise

    def _decoded(self, note: str) -> T:
        try:
            return msgspec.json.decode(note, type=type(self.value)) if note else self.value
        except msgspec.DecodeError as error:
            log.warning("the note %s cannot be read and is begun anew: %s", self._name, error)
            return self.value


class OwnNotes:
    """Notes of one chat alone: two that keep the same kind of thing do not meet."""

    def __init__(self, notes: Notes, chat: str) -> None:
        self._notes = notes
        self._chat = chat

    async def note(self, name: str) -> str:
        """What this chat last kept under a name; "" if nothing. Raises StoreError."""
        return await self._notes.note(f"{name} of {self._chat}")

    async def keep_note(self, name: str, value: str) -> None:
        """Keep a value under a name, for this chat alone. Raises StoreError."""
        await self._notes.keep_note(f"{name} of {self._chat}", value)
