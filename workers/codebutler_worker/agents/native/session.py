"""A session while a turn works in it: each step is on disk before the next one begins."""

from __future__ import annotations

import asyncio

from codebutler_worker.agents.native.history import Cleaned, History, Record, Said, after
from codebutler_worker.agents.native.model import Message
from codebutler_worker.agents.native.sessions import Journal


class Session:
    """``fresh``: the one that was asked for is gone."""

    def __init__(self, journal: Journal, history: History, *, fresh: bool = False) -> None:
        self.history = history
        self.fresh = fresh
        self._journal = journal

    @property
    def id(self) -> str:
        """What later turns ask for to go on with it."""
        return self._journal.session_id

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model is given again, oldest first; what was cleaned away is not among it."""
        return self.history.messages

    async def keep(self, *records: Record) -> None:
        """Add what happened. Raises StoreError if it cannot be kept; then it did not happen here either."""
        if not records:
            return
        await asyncio.to_thread(self._journal.append, records)
        for record in records:
            self.history = after(self.history, record)

    async def say(self, *messages: Message) -> None:
        """Add messages."""
        await self.keep(*(Said(message) for message in messages))

    async def clean(self, messages: tuple[Message, ...]) -> None:
        """Let these stand for all there is."""
        await self.keep(Cleaned(messages))

    async def close(self) -> None:
        """Close its file; what was said is on disk already."""
        await asyncio.to_thread(self._journal.close)
