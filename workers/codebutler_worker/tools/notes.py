"""Notes: what an agent of ours may keep for later sessions while a turn runs."""

from __future__ import annotations

from typing import Protocol


class Notes(Protocol):
    """Facts by name, of the repository or of the person the turn is for."""

    async def remember(self, key: str, value: str, *, for_person: bool) -> str:
        """Keep it, in place of what had the name before; returns what is kept. Raises ToolError with why not."""

    async def forget(self, key: str, *, for_person: bool) -> bool:
        """Drop it; False if there was none."""
