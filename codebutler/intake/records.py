"""The journal's records: accepted events, and the recent messages of a channel."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from codebutler.domain.errors import StoreError
from codebutler.domain.model import Event, Request
from codebutler.domain.refs import ConversationRef, MessageRef, PersonRef

# How far before a gap to look: for messages out of order, and for edits and deletions.
LOOK_BACK_S = 3600.0
T = TypeVar("T", bound=msgspec.Struct)

log = logging.getLogger("codebutler.notes")


class Entry(Struct, frozen=True):
    """A committed event; ``seq`` is its place in the journal. ``trace``: the context of its trace, "" = none."""

    seq: int
    channel: ConversationRef
    event: Event
    request: Request
    received_at: datetime
    trace: str = ""


class SeenMessage(Struct, frozen=True):
    """A received message. ``taken``: it was accepted; else it was ignored (a stranger's)."""

    ref: MessageRef
    root: MessageRef
    user: PersonRef
    taken: bool
    sent_at: float


class Gap(Struct, frozen=True):
    """What may have been missed in a channel: messages after ``since_s``, and the ``known`` ones from
    LOOK_BACK_S before on. Messages up to ``floor_s`` are not ours: they were written before we first
    listened.

    ``first_root`` started the oldest live thread; ``beyond`` are the last messages of old live threads.
    """

    channel: ConversationRef
    since_s: float
    floor_s: float
    known: tuple[SeenMessage, ...]
    first_root: str = ""
    beyond: tuple[SeenMessage, ...] = ()


class Notes(Protocol):
    """Notes that outlive the process; the journal stores them."""

    async def note(self, name: str) -> str:
        """The note of that name; "" if there is none. Raises StoreError."""

    async def keep_note(self, name: str, value: str) -> None:
        """Store a note, replacing an earlier one. Raises StoreError."""


class Kept(Generic[T]):
    """``value`` is the note ``name``, once it is opened; before that, and without one, ``empty``.

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
        """Change the value, and store it. Raises StoreError, and nothing changes."""
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
            log.warning("cannot read the note %s, starting with an empty one: %s", self._name, error)
            return self.value


class OwnNotes:
    """One chat's own notes: those of two chats never collide."""

    def __init__(self, notes: Notes, chat: str) -> None:
        self._notes = notes
        self._chat = chat

    async def note(self, name: str) -> str:
        """This chat's note of that name; "" if there is none. Raises StoreError."""
        return await self._notes.note(f"{name} of {self._chat}")

    async def keep_note(self, name: str, value: str) -> None:
        """Store a note for this chat alone. Raises StoreError."""
        await self._notes.keep_note(f"{name} of {self._chat}", value)
