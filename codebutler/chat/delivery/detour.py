"""Where an operation leaves for another place than it was meant for: a direct conversation.

A worker knows its own channel only. What it says about a message of a direct conversation goes there.
"""

from __future__ import annotations

from typing import Protocol


class Detour(Protocol):
    """Knows which messages and files of a channel's repository stand in a direct conversation."""

    def where(self, channel: str, item: str) -> str:
        """The conversation in which ``item`` stands (a message's ts, a file's ID); else ``channel``."""

    def relinked(self, text: str) -> str:
        """The text with its links to messages leading to where they stand."""

    async def posted(self, channel: str, place: str, ts: str) -> None:
        """Our message ``ts``, meant for ``channel``, stands in ``place``."""


class NoDetour:
    """Everything stays in its channel."""

    def where(self, channel: str, item: str) -> str:  # noqa: ARG002 - no item stands elsewhere
        """``channel`` itself."""
        return channel

    def relinked(self, text: str) -> str:
        """``text`` itself."""
        return text

    async def posted(self, channel: str, place: str, ts: str) -> None:
        """Nothing to remember."""
