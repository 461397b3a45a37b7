"""What the schedule asks of the rest of the parent."""

from __future__ import annotations

from typing import Protocol

from codebutler.domain.model import Event, Post
from codebutler.intake.intake import Outcome


class Mouth(Protocol):
    """Says things, once each."""

    async def post(self, channel: str, key: str, post: Post, *, unsure: bool) -> str:
        """Say something once for each ``key``; its ts. ``unsure``: it may stand there already. Raises ChatError."""


class Door(Protocol):
    """Where wishes are handed in, anybody's: the intake."""

    async def accept(self, event: Event, *, missed: bool = False) -> Outcome:
        """Journal an event; what became of it. ``missed``: nothing ran when it was due. Raises StoreError."""
