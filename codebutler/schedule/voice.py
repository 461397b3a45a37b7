"""How the schedule speaks: what it says has the same operation id in every life."""

from __future__ import annotations

from uuid import UUID, uuid5

from codebutler.chat.chats import Chats
from codebutler.control.listeners import Listeners
from codebutler.domain.model import Post, TurnOutcome

_SPACE = UUID("5c6c0f0b-3f0e-5b39-9d1b-6a1c4d0e8a57")


class Voice:
    """Says things in channels, once each."""

    def __init__(self, chats: Chats, listeners: Listeners) -> None:
        self._chats = chats
        self._listeners = listeners

    async def post(self, channel: str, key: str, post: Post, *, unsure: bool) -> str:
        """Say something once, however often it is tried; returns its ts. Raises ChatError."""
        ts = await self._chats.submit(channel, uuid5(_SPACE, key).hex, post, unsure=unsure)
        self._listeners.tell(channel, post, ts)
        return ts

    async def ended(self, channel: str, ts: str, outcome: TurnOutcome) -> None:
        """Tell who waits for the message ``ts`` what became of it."""
        await self._listeners.ended(channel, (ts,), outcome)
