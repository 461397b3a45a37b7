"""Which posts were handed to the chat, in this life and earlier ones: only those are looked for before they are sent
again.

One is noted before the call, together with whatever else is written to the journal then. A death between the note and
the call costs one look-up, and nothing else.
"""

from __future__ import annotations

from contextlib import suppress

from codebutler.errors import StoreError
from codebutler.intake.notes import Notes

SINCE = "sent"
"""Kept from the first life that notes what it hands over."""
MAYBE = "1"


async def begin_anew(notes: Notes) -> None:
    """They are older than what was handed over since, as those of a backup are. Raises StoreError."""
    await notes.keep_note(SINCE, "")


class Handed:
    """Without ``notes`` anything may have been handed over. ``begin`` it before use."""

    def __init__(self, notes: Notes | None) -> None:
        self._notes = notes
        self._is_whole = False

    async def begin(self) -> None:
        """Find out whether earlier lives noted what they handed over."""
        if self._notes is not None:
            with suppress(StoreError):
                self._is_whole = bool(await self._notes.note(SINCE))
                await self._notes.keep_note(SINCE, "noted")

    async def trace(self, channel: str, op_id: str) -> str:
        """What is known of that post: "" if it was not handed over, MAYBE if it may have been, else the ts of the place
        that is kept for it."""
        if self._notes is None:
            return MAYBE
        try:
            if found := await self._notes.note(_name(channel, op_id)):
                return found
            if not self._is_whole:
                # The next life takes the notes for whole.
                await self.note(channel, op_id)
        except StoreError:
            return MAYBE
        return "" if self._is_whole else MAYBE

    async def note(self, channel: str, op_id: str, trace: str = MAYBE) -> None:
        """It is about to be, or a place is kept for it. Raises StoreError."""
        if self._notes is not None:
            await self._notes.keep_note(_name(channel, op_id), trace)


def _name(channel: str, op_id: str) -> str:
    return f"sent:{channel}:{op_id}"
