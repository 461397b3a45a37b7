"""Pipe: the messages of the Agent Client Protocol as lines of a process.

The library's own reads lines of any length, takes no notice of a flood, and logs what an agent makes up.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from codebutler_worker.programs.process import AgentProcess

WORDS_CHARS = 2_000
LARGE_BYTES = 64 * 2**10
"""A message of so many is heard before the next one is read: a queue full of them would be gigabytes."""


class Room(Protocol):
    """Returns when what came before has been heard: most of it, or, where it was ``large``, all."""

    async def __call__(self, *, large: bool = False) -> None:
        """Wait."""


class Pipe:
    """The library's Transport over an AgentProcess. What is no message is dropped: ``ignored`` counts it, and the first
    of it, ``last_words``, may say why there is none."""

    def __init__(self, process: AgentProcess, room: Room) -> None:
        self.ignored = 0
        self.last_words = ""
        self._process = process
        self._lines = process.lines()
        self._room = room
        self._was_large = False

    async def send(self, message: dict[str, Any]) -> None:
        """Raises ConnectionError for a request that cannot be sent; nobody waits for what an answer comes to."""
        sent = await self._process.write_line(msgspec.json.encode(message))
        if not sent and "method" in message:
            raise ConnectionError("the agent does not read any more")

    async def receive(self) -> dict[str, Any] | None:
        """The next message, None at the end of the stream. A flood waits in the pipe, not in our memory."""
        await self._room(large=self._was_large)
        async for line in self._lines:
            self._was_large = len(line) >= LARGE_BYTES
            message = decode(line)
            if message is not None:
                return message
            self._not_understood(line)
        return None

    async def close(self) -> None:
        """The process is ended by the link."""

    def _not_understood(self, line: bytes) -> None:
        if line.strip():
            self.ignored += 1
            left = WORDS_CHARS - len(self.last_words)
            self.last_words += line[:WORDS_CHARS].decode(errors="replace")[: max(left, 0)] + "\n"


def decode(line: bytes) -> dict[str, Any] | None:
    """A message that the library can take, None for anything else."""
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("id"), int | str | None):
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    failed = message.get("error")
    if failed is not None and not (
        isinstance(failed, dict)
        and isinstance(failed.get("code", 0), int)
        and isinstance(failed.get("message", ""), str)
    ):
        return None
    return message if "id" in message else None
